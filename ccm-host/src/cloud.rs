//! The client of a provider.
