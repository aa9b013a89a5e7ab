//! Answers from a model that shows what it would say if single features of a row had other values: the best single
//! change is read off, the best second change beside a first one too, and the numbers of larger answers are moved
//! to where they cost least. What is read off is asked about before it is believed.

use super::arena::Arena;
use super::plateaus::Plateau;
use super::pool::Pool;
use super::{Change, Changes, Trial};
use crate::constrain::Room;
use crate::encode::Slots;
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;
use crate::metrics::Status;
use crate::predictor::{Reach, Responses, Values};
use crate::target::{is_valid, margins};

/// Proposals of one look that are asked about.
const ASKED: usize = 2;
/// An answer that costs less needs no pair to compete with it.
const EXPENSIVE: f64 = 1.6;
/// First changes that a second one is looked for beside.
const FIRSTS: usize = 3;
/// Share of a feature's greatest gain that a cheaper value must bring to be the first of a pair.
const NEARLY: f32 = 0.8;
/// Changes that are added one after the other, at most, where two are not enough.
const MOST: usize = 8;
/// Rounds in which the values of an answer are moved to where they cost least.
const ROUNDS: usize = 2;

/// A single change beside others, with what the model says of it up to rounding.
#[derive(Debug, Clone)]
struct Proposal {
    change: Change,
    /// What it costs less what it gains, without the changes beside it.
    score: f64,
    cost: f64,
    margin: f64,
    /// Whether it gets the target, with the margin that the entry is held to.
    valid: bool,
}

/// What was found about one entry.
struct Look {
    entry: u32,
    /// Changes that are there already.
    beside: Changes,
    /// Ascending by score.
    proposals: Vec<Proposal>,
}

impl Worker {
    /// Finds the best single changes of all entries, the best pairs of those that need them, and more changes for
    /// those that need more. False where the model does not show what it would say.
    pub(super) fn improve_by_responses(
        &self,
        arena: &mut Arena<'_>,
        pool: &mut Pool,
    ) -> Result<bool> {
        if self.follows_formulas() {
            return Ok(false);
        }
        let mut looks = Vec::with_capacity(arena.len());
        for entry in 0..arena.len() as u32 {
            match self.look(arena, entry, Changes::new())? {
                Some(look) => looks.push(look),
                None if arena.is_spent(entry) => {}
                None => return Ok(false),
            }
        }
        self.ask_best(arena, pool, &looks)?;
        let expensive = self.expensive(arena, pool, EXPENSIVE);
        let mut pairs = Vec::new();
        for look in looks.iter().filter(|look| expensive.binary_search(&look.entry).is_ok()) {
            for first in look.firsts() {
                pairs.extend(self.look(arena, look.entry, Changes::from_slice(&[first]))?);
            }
        }
        self.ask_best(arena, pool, &pairs)?;
        self.add_changes(arena, pool, &looks)?;
        Ok(true)
    }

    /// Whether features follow from others: what a change does is not seen from the model alone then.
    fn follows_formulas(&self) -> bool {
        let features = self.shared.refiner.layout.slots.len();
        (0..features).any(|feature| self.shared.constraints.is_followed(feature))
    }

    /// Looks at everything that one more change may do.
    fn look(&self, arena: &mut Arena<'_>, entry: u32, beside: Changes) -> Result<Option<Look>> {
        let reach = self
            .reach(arena, entry, |feature| !beside.iter().any(|change| change.feature == feature));
        let Some(responses) = arena.responses(entry, &beside, &reach)? else { return Ok(None) };
        let proposals = self.proposals(arena, entry, &responses);
        Ok(Some(Look { entry, beside, proposals }))
    }

    /// What the features of an entry's row may become.
    fn reach(&self, arena: &Arena<'_>, entry: u32, free: impl Fn(usize) -> bool) -> Vec<Reach> {
        let room = arena.room(entry);
        let slots = self.shared.refiner.layout.slots.iter().enumerate();
        let reach = |(feature, slots): (usize, &Slots)| match (slots, arena.own(entry, feature)) {
            _ if !free(feature) => Reach::Fixed,
            (Slots::Numeric(_), Cell::Number(own)) => match room.interval(feature, own) {
                Some((low, high)) => Reach::Numbers(low.min(own), high.max(own)),
                None => Reach::Fixed,
            },
            (Slots::Categorical(slots), Cell::Code(own)) => {
                let codes = 0..slots.values as u32;
                let codes: Vec<u32> =
                    codes.filter(|code| *code != own && room.allows(feature, *code, own)).collect();
                if codes.is_empty() { Reach::Fixed } else { Reach::Codes(codes) }
            }
            _ => Reach::Fixed,
        };
        slots.map(reach).collect()
    }

    /// Every change that the model was seen to say something about, the best first. Of numbers for which it says the
    /// same only the nearest to the original.
    fn proposals(&self, arena: &Arena<'_>, entry: u32, responses: &Responses) -> Vec<Proposal> {
        let wishes = arena.asked.wishes.take(&vec![entry; responses.values.len()]);
        let decided = is_valid(&responses.scores, &wishes);
        let margins = margins(&responses.scores, &wishes, &self.shared.codec);
        let room = arena.room(entry);
        let told = decided.into_iter().zip(margins);
        let found = responses.values.iter().zip(told).filter_map(|((feature, values), told)| {
            let own = arena.own(entry, *feature);
            let cell = nearest(room, *feature, *values, own)?;
            let change = Change { feature: *feature, cell };
            let cost = self.shared.refiner.costs.of(&change, own);
            let (valid, margin) = (told.0 && arena.reaches(entry, told.1), told.1);
            let score = self.score(arena, entry, &[change]) - arena.prize_of(margin);
            Some(Proposal { change, score, cost, margin, valid })
        });
        let mut found: Vec<Proposal> = found.collect();
        found.sort_by(|one, two| one.score.total_cmp(&two.score));
        found
    }

    /// Asks about the best valid proposals: of every entry a few, of different features.
    fn ask_best(&self, arena: &mut Arena<'_>, pool: &mut Pool, looks: &[Look]) -> Result<()> {
        let mut trials: Vec<(f64, Trial)> = Vec::new();
        for looks in looks.chunk_by(|one, two| one.entry == two.entry) {
            let mut best: Vec<(f64, Trial)> = Vec::new();
            for look in looks {
                let beside = self.score(arena, look.entry, &look.beside);
                let valid = look.valid(|changes| self.is_coherent(arena, look.entry, changes));
                let trial = |(score, changes): (f64, Changes)| {
                    (beside + score, Trial { entry: look.entry, changes })
                };
                best.extend(valid.map(trial));
            }
            best.sort_by(|one, two| one.0.total_cmp(&two.0));
            best.dedup_by(|one, two| one.1 == two.1);
            trials.extend(best.into_iter().take(ASKED));
        }
        let trials = trials.into_iter().map(|(_, trial)| trial).collect();
        pool.judge(arena, trials, Status::SolvedByCandidate)
    }

    fn is_coherent(&self, arena: &Arena<'_>, entry: u32, changes: &[Change]) -> bool {
        self.shared.constraints.is_coherent(changes, |feature| arena.own(entry, feature))
    }

    /// Adds changes one after the other for entries that neither one nor two solve: always the one that brings the
    /// model nearest to the target, until one gets there.
    fn add_changes(&self, arena: &mut Arena<'_>, pool: &mut Pool, looks: &[Look]) -> Result<()> {
        let mut trials = Vec::new();
        let open = pool.open(arena);
        for look in looks.iter().filter(|look| open.binary_search(&look.entry).is_ok()) {
            trials.extend(self.grown(arena, look)?);
        }
        pool.judge(arena, trials, Status::SolvedByCandidate)
    }

    fn grown(&self, arena: &mut Arena<'_>, look: &Look) -> Result<Option<Trial>> {
        let entry = look.entry;
        let mut changes = Changes::new();
        let (mut margin, mut proposals) = (f64::NEG_INFINITY, look.proposals.clone());
        while changes.len() < MOST {
            let with = |proposal: &Proposal| with(&changes, proposal.change);
            let possible = |proposal: &&Proposal| self.is_coherent(arena, entry, &with(proposal));
            let valid = proposals.iter().filter(|proposal| proposal.valid).find(possible);
            if let Some(valid) = valid {
                return Ok(Some(Trial { entry, changes: with(valid) }));
            }
            let nearer = proposals.iter().filter(|proposal| proposal.margin > margin);
            let nearest = nearer.filter(possible).max_by(|one, two| {
                one.margin.total_cmp(&two.margin).then(two.cost.total_cmp(&one.cost))
            });
            let Some(nearest) = nearest else { break };
            (margin, changes) = (nearest.margin, with(nearest));
            match self.look(arena, entry, changes.clone())? {
                Some(look) => proposals = look.proposals,
                None => break,
            }
        }
        Ok(None)
    }

    /// Moves every value of answers with several changes to where it costs least beside the others, or back.
    pub(super) fn polish(&self, arena: &mut Arena<'_>, pool: &mut Pool) -> Result<()> {
        let mut trials = Vec::new();
        for entry in 0..arena.len() as u32 {
            let best = self.best(arena, pool, entry as usize);
            let several = best.filter(|best| best.changes.len() > 1);
            let Some((changes, by)) = several.map(|best| (best.changes.clone(), best.by)) else {
                continue;
            };
            if let Some(changes) = self.polished(arena, entry, changes)? {
                trials.push((Trial { entry, changes }, by));
            }
        }
        let (trials, means): (Vec<Trial>, Vec<Status>) = trials.into_iter().unzip();
        pool.judge_each(arena, trials, &means)
    }

    /// Changes with every value where it costs least beside the others; none where nothing moves.
    fn polished(
        &self,
        arena: &mut Arena<'_>,
        entry: u32,
        start: Changes,
    ) -> Result<Option<Changes>> {
        let mut changes = start.clone();
        for _ in 0..ROUNDS {
            let before = changes.clone();
            for feature in before.iter().map(|change| change.feature) {
                let mut beside = changes.clone();
                beside.retain(|change| change.feature != feature);
                let reach = self.reach(arena, entry, |free| free == feature);
                let Some(found) = arena.responses(entry, &beside, &reach)? else { break };
                let proposals = self.proposals(arena, entry, &found);
                let valid = proposals.iter().filter(|proposal| proposal.valid);
                let mut valid = valid.map(|proposal| with(&beside, proposal.change));
                let coherent = valid.find(|changes| self.is_coherent(arena, entry, changes));
                changes = coherent.unwrap_or(changes);
            }
            if changes == before {
                break;
            }
        }
        Ok((changes != start).then_some(changes))
    }
}

impl Look {
    /// Its valid proposals with what is beside them: the best of each feature, by score.
    fn valid<'l>(
        &'l self,
        coherent: impl Fn(&[Change]) -> bool + 'l,
    ) -> impl Iterator<Item = (f64, Changes)> + 'l {
        let mut features: Vec<usize> = Vec::new();
        let valid = self.proposals.iter().filter(|proposal| proposal.valid);
        let best = valid.filter_map(move |proposal| {
            if features.contains(&proposal.change.feature) {
                return None;
            }
            let changes = with(&self.beside, proposal.change);
            coherent(&changes).then(|| {
                features.push(proposal.change.feature);
                (proposal.score, changes)
            })
        });
        best.take(ASKED)
    }

    /// The changes beside which a second one is looked for: of the features that bring the model nearest the
    /// cheapest value that nearly does.
    fn firsts(&self) -> Vec<Change> {
        let margins = || self.proposals.iter().map(|proposal| proposal.margin as f32);
        let base = margins().fold(f32::INFINITY, f32::min);
        let mut strong: Vec<(f32, &Proposal)> = Vec::new();
        let mut features: Vec<usize> =
            self.proposals.iter().map(|proposal| proposal.change.feature).collect();
        features.sort_unstable();
        features.dedup();
        for feature in features {
            let of = || self.proposals.iter().filter(|one| one.change.feature == feature);
            let most = of().map(|one| one.margin as f32 - base).fold(0.0, f32::max);
            let enough = of().filter(|one| one.margin as f32 - base >= NEARLY * most);
            let cheapest = enough.min_by(|one, two| one.cost.total_cmp(&two.cost));
            strong.extend(cheapest.filter(|_| most > 0.0).map(|one| (most, one)));
        }
        strong.sort_by(|one, two| two.0.total_cmp(&one.0));
        strong.into_iter().take(FIRSTS).map(|(_, one)| one.change).collect()
    }
}

/// Changes with one more, in the order of the features.
fn with(changes: &Changes, change: Change) -> Changes {
    let mut all = changes.clone();
    let at = all.partition_point(|one| one.feature < change.feature);
    all.insert(at, change);
    all
}

/// Of these values the allowed one that is nearest to the original; none if the original is among them, or nothing
/// is allowed.
fn nearest(room: Room<'_>, feature: usize, values: Values, own: Cell) -> Option<Cell> {
    match (values, own) {
        (Values::Code(code), _) => Some(Cell::Code(code)),
        (Values::Numbers(low, high), Cell::Number(own)) => {
            let plateau = Plateau { low, high };
            let number = plateau.nearest_to(room, feature, own);
            number.filter(|_| !plateau.contains(own)).map(Cell::Number)
        }
        _ => None,
    }
}
