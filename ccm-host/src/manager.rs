//! The process around the controllers.
