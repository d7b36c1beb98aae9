//! Cost of the host, side by side with the raw apiserver, in one run.
