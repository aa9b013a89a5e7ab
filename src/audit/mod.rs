//! What published runs say of groups of people, for those who answer for a model: tables, and one page.

pub mod page;
