"""`make dist`: what is published, built and tried."""
