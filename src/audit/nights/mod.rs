//! Night over night: what became of the counterfactuals of an earlier run.
//!
//! Both runs' counterfactuals are held in memory by hashes of their keys ([`RecordedResults`]), in so many passes that the
//! memory is bounded however many rows there are. The rows of the input are read beside them; the changes that the
//! earlier run told of a row are made once more of the row as it is now, and the model is asked about it
//! ([`RunComparison`]). What changed is told by hashes ([`Causes`]): of the row, of the model, of the generator's files, and
//! by the job's settings.

mod causes;
mod compare;
mod groups;
mod previous;
mod results;
mod table;

pub use causes::{Causes, RunState};
pub use compare::{Asking, Compared, Nights, RunComparison};
pub use groups::{GroupNames, Groups, Stability};
pub use previous::{Previous, find_run};
pub use results::{RecordedResults, ResultSetup, Slice, passes};
pub use table::{rows_table, stability_table};
