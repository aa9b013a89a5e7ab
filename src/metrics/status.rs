//! What became of a row, and what found its counterfactual.

use serde::{Deserialize, Serialize};

/// What became of a row with a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A counterfactual was found.
    Solved,
    /// None was found.
    Unsolved,
    /// The model predicts the target for the original.
    AlreadyTarget,
    /// No allowed change reaches the target: none is allowed at all, or all were tried.
    Infeasible,
}

/// What found the counterfactual of a solved row. A further method is a further source, never a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The generator's first proposal, or part of its changes.
    Generator,
    /// A further proposal of the generator, the model's responses, or exhaustive search.
    Candidate,
    /// Values of training rows of the target.
    Neighbour,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 4] =
        [Status::Solved, Status::Unsolved, Status::AlreadyTarget, Status::Infeasible];

    /// As written to tables.
    pub fn name(self) -> &'static str {
        match self {
            Status::Solved => "solved",
            Status::Unsolved => "unsolved",
            Status::AlreadyTarget => "already_target",
            Status::Infeasible => "infeasible",
        }
    }

    /// The one of this name.
    pub fn of_name(name: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl Source {
    /// All of them.
    pub const ALL: [Source; 3] = [Source::Generator, Source::Candidate, Source::Neighbour];

    /// As written to tables.
    pub fn name(self) -> &'static str {
        match self {
            Source::Generator => "generator",
            Source::Candidate => "candidate",
            Source::Neighbour => "neighbour",
        }
    }

    /// The one of this name.
    pub fn of_name(name: &str) -> Option<Source> {
        Source::ALL.into_iter().find(|source| source.name() == name)
    }
}
