"""What programs do with channels: producers, workers, readers, remote calls, retries, pools, codecs."""
