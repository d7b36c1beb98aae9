//! The controllers, one module each, all of the same shape.
