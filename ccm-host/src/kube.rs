//! Everything that speaks to the apiserver.
