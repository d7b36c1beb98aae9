//! The chart, the files generated from it, and the host with what they render.

mod chart;
mod made;
mod rendered;
mod rights;
