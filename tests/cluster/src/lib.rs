//! A control plane, a provider and the host as the processes an operator would run.
