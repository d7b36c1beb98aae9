//! The chart, what is made from it, and the host as it says.

mod chart;
mod made;
mod rendered;
mod rights;
