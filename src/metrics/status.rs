//! What became of a row.

use serde::{Deserialize, Serialize};

/// What became of a row for which a decision was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The generator's counterfactual gets the wanted decision.
    SolvedByGenerator,
    /// No counterfactual was found that gets it.
    Unsolved,
    /// The row has it already.
    AlreadyTarget,
    /// The row's constraints allow no change at all.
    Infeasible,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 4] =
        [Status::SolvedByGenerator, Status::Unsolved, Status::AlreadyTarget, Status::Infeasible];

    /// As written to tables.
    pub fn name(self) -> &'static str {
        match self {
            Status::SolvedByGenerator => "solved_by_generator",
            Status::Unsolved => "unsolved",
            Status::AlreadyTarget => "already_target",
            Status::Infeasible => "infeasible",
        }
    }
}
