//! What is told of groups and of nights, beside the reports.

pub mod nights;
