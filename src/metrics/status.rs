//! What became of a row.

use serde::{Deserialize, Serialize};

/// What became of a row for which a decision was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The generator's counterfactual gets the wanted decision.
    SolvedByGenerator,
    /// So does a further one of the generator's, one that the model's responses show, or one found by exhaustive
    /// search.
    SolvedByCandidate,
    /// So does what training rows of the wanted decision suggest.
    SolvedByNeighbour,
    /// No counterfactual was found that gets it.
    Unsolved,
    /// The row has it already.
    AlreadyTarget,
    /// No allowed change gets it: none is allowed at all, or all were tried.
    Infeasible,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 6] = [
        Status::SolvedByGenerator,
        Status::SolvedByCandidate,
        Status::SolvedByNeighbour,
        Status::Unsolved,
        Status::AlreadyTarget,
        Status::Infeasible,
    ];

    /// Whether the row has a counterfactual that gets the wanted decision.
    pub fn is_solved(self) -> bool {
        use Status::{SolvedByCandidate, SolvedByGenerator, SolvedByNeighbour};
        matches!(self, SolvedByGenerator | SolvedByCandidate | SolvedByNeighbour)
    }

    /// As written to tables.
    pub fn name(self) -> &'static str {
        match self {
            Status::SolvedByGenerator => "solved_by_generator",
            Status::SolvedByCandidate => "solved_by_candidate",
            Status::SolvedByNeighbour => "solved_by_neighbour",
            Status::Unsolved => "unsolved",
            Status::AlreadyTarget => "already_target",
            Status::Infeasible => "infeasible",
        }
    }
}
