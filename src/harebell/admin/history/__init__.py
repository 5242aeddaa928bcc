"""The figures of the last hour: samples of counts and lengths, rates, the machine."""
