//! What a provider team builds a sidecar with.
