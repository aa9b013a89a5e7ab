//! Answers from a model that shows what it would say if single features of a row had other values: the best single
//! change is read off, the best second change beside a first one too, and the numbers of larger answers are moved
//! to where they cost least. What is read off is asked about before it is believed.

use super::arena::Arena;
use super::plateaus::Plateau;
use super::pool::Pool;
use super::{Change, Changes, Trial};
use crate::encode::Slots;
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;
use crate::metrics::Source;
use crate::predictor::{Reach, Responses, Values};
use crate::target::{is_valid, margins};

/// Looks that are taken together.
const AT_ONCE: usize = 256;
/// Proposals of one look that are asked about.
const ASKED: usize = 2;
/// An answer that costs less needs no pair to compete with it.
const EXPENSIVE: f64 = 0.8;
/// First changes that a second one is looked for beside.
const FIRSTS: usize = 4;
/// Share of a feature's greatest gain that a cheaper value must bring to be the first of a pair.
const NEARLY: f64 = 0.8;
/// Changes that are added one after the other, at most, where two are not enough.
const MOST: usize = 8;
/// Rounds in which the values of an answer are moved to where they cost least.
const ROUNDS: usize = 2;

/// A valid single change beside others, by what the model says of it up to rounding.
#[derive(Debug, Clone)]
struct Proposal {
    change: Change,
    /// What it costs less what it gains, without the changes beside it.
    score: f64,
}

/// What was found about one entry.
#[derive(Debug, Clone)]
struct Look {
    entry: u32,
    /// Changes that are there already.
    beside: Changes,
    /// Those that get the target, with the margin that the entry is held to; ascending by score.
    valid: Vec<Proposal>,
    /// Everything that was seen, and how far inside the target it is.
    values: Vec<(usize, Values)>,
    margins: Vec<f64>,
    /// How far inside the target the changes beside are, as far as that was seen.
    reached: f64,
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
        let all = (0..arena.len() as u32).map(|entry| (entry, Changes::new())).collect();
        let Some(looks) = self.look(arena, all)? else { return Ok(false) };
        self.ask_best(arena, pool, &looks)?;
        let expensive = self.expensive(arena, pool, EXPENSIVE);
        let looked = looks.iter().filter(|look| expensive.binary_search(&look.entry).is_ok());
        let firsts = looked.flat_map(|look| {
            let firsts = self.firsts(arena, look).into_iter();
            firsts.map(|first| (look.entry, Changes::from_slice(&[first])))
        });
        let firsts = firsts.collect();
        let pairs = self.look(arena, firsts)?.unwrap_or_default();
        self.ask_best(arena, pool, &pairs)?;
        self.add_changes(arena, pool, &looks)?;
        Ok(true)
    }

    /// Looks for answers to entries that have none, one change after the other.
    pub(super) fn solve_by_responses(&self, arena: &mut Arena<'_>, pool: &mut Pool) -> Result<()> {
        let open = pool.open(arena);
        if open.is_empty() || self.follows_formulas() {
            return Ok(());
        }
        let rows = open.iter().map(|entry| (*entry, Changes::new())).collect();
        let Some(looks) = self.look(arena, rows)? else { return Ok(()) };
        self.add_changes(arena, pool, &looks)?;
        self.polish(arena, pool, &open)
    }

    /// Whether features follow from others: what a change does is not seen from the model alone then.
    pub(super) fn follows_formulas(&self) -> bool {
        let features = self.shared.refiner.layout.slots.len();
        (0..features).any(|feature| self.shared.constraints.is_followed(feature))
    }

    /// Looks at everything that one more change may do beside others, entry by entry. Entries about which nothing more
    /// may be asked are left out.
    fn look(
        &self,
        arena: &mut Arena<'_>,
        beside: Vec<(u32, Changes)>,
    ) -> Result<Option<Vec<Look>>> {
        let rows: Vec<(u32, Changes, Vec<Reach>)> = beside
            .into_iter()
            .map(|(entry, beside)| {
                let free = |feature: usize| !beside.iter().any(|one| one.feature == feature);
                let reach = self.reach(arena, entry, free);
                (entry, beside, reach)
            })
            .collect();
        self.look_within(arena, rows)
    }

    /// The same where it is said what features may become.
    fn look_within(
        &self,
        arena: &mut Arena<'_>,
        rows: Vec<(u32, Changes, Vec<Reach>)>,
    ) -> Result<Option<Vec<Look>>> {
        let mut looks = Vec::with_capacity(rows.len());
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let some: Vec<_> = rows.by_ref().take(AT_ONCE).collect();
            let Some(found) = arena.responses(&some)? else { return Ok(None) };
            for ((entry, beside, _), found) in some.into_iter().zip(found) {
                looks.extend(found.map(|found| self.seen(arena, (entry, beside), found)));
            }
        }
        Ok(Some(looks))
    }

    /// What the features of an entry's row may become.
    pub(super) fn reach(
        &self,
        arena: &Arena<'_>,
        entry: u32,
        free: impl Fn(usize) -> bool,
    ) -> Vec<Reach> {
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

    /// What a model shows of an entry's row. Of numbers for which it says the same only the nearest to the original
    /// is a proposal.
    fn seen(
        &self,
        arena: &Arena<'_>,
        (entry, beside): (u32, Changes),
        Responses { values, scores }: Responses,
    ) -> Look {
        let wishes = arena.asked.wishes.take(&vec![entry; values.len()]);
        let decided = is_valid(&scores, &wishes);
        let margins = margins(&scores, &wishes, &self.shared.codec);
        let valid: Vec<bool> = decided
            .into_iter()
            .zip(&margins)
            .map(|(decided, margin)| decided && arena.reaches(entry, *margin))
            .collect();
        let seen = Seen { values: &values, margins: &margins, prizes: arena.prizes_margins() };
        let near = |at: usize| nearest(arena, entry, values[at]).filter(|_| valid[at]);
        let found = seen.worthwhile(near, |feature| arena.own(entry, feature));
        let proposals = found.into_iter().map(|(at, change)| {
            let score = self.score(arena, entry, &[change]) - arena.prize_of(margins[at]);
            Proposal { change, score }
        });
        let mut proposals: Vec<Proposal> = proposals.collect();
        proposals.sort_by(|one, two| one.score.total_cmp(&two.score));
        Look { entry, beside, valid: proposals, values, margins, reached: f64::NEG_INFINITY }
    }

    /// The changes beside which a second one is looked for: of the features that bring the model nearest the
    /// cheapest value that nearly does.
    fn firsts(&self, arena: &Arena<'_>, look: &Look) -> Vec<Change> {
        let base = look.margins.iter().copied().fold(f64::INFINITY, f64::min);
        let told = || look.values.iter().zip(&look.margins);
        let mut gains: Vec<(f64, usize)> = Vec::new();
        for (feature, margins) in told().map(|((feature, _), margin)| (*feature, *margin - base)) {
            match gains.iter_mut().find(|(_, of)| *of == feature) {
                Some((gain, _)) => *gain = gain.max(margins),
                None => gains.push((margins, feature)),
            }
        }
        gains.retain(|(gain, _)| *gain > 0.0);
        gains.sort_by(|one, two| two.0.total_cmp(&one.0));
        let cheapest = |(gain, feature): (f64, usize)| {
            let enough = |((of, _), margin): &(&(usize, Values), &f64)| {
                *of == feature && **margin - base >= NEARLY * gain
            };
            let changes =
                told().filter(enough).filter_map(|(value, _)| nearest(arena, look.entry, *value));
            let cost = |change: &Change| self.cost(arena, look.entry, change);
            changes.min_by(|one, two| cost(one).total_cmp(&cost(two)))
        };
        gains.into_iter().take(FIRSTS).filter_map(cheapest).collect()
    }

    pub(super) fn cost(&self, arena: &Arena<'_>, entry: u32, change: &Change) -> f64 {
        self.shared.refiner.costs.of(change, arena.own(entry, change.feature))
    }

    /// Asks about the best valid proposals: of every entry a few, of different features.
    fn ask_best(&self, arena: &mut Arena<'_>, pool: &mut Pool, looks: &[Look]) -> Result<()> {
        let mut trials: Vec<(f64, Trial)> = Vec::new();
        for looks in looks.chunk_by(|one, two| one.entry == two.entry) {
            let mut best: Vec<(f64, Trial)> = Vec::new();
            for look in looks {
                let beside = self.score(arena, look.entry, &look.beside);
                let valid = look.best(|changes| self.is_coherent(arena, look.entry, changes));
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
        pool.judge(arena, trials, Source::Candidate)
    }

    pub(super) fn is_coherent(&self, arena: &Arena<'_>, entry: u32, changes: &[Change]) -> bool {
        self.shared.constraints.is_coherent(changes, |feature| arena.own(entry, feature))
    }

    /// Adds changes one after the other for entries that neither one nor two solve: always the one that brings the
    /// model nearest to the target, until one gets there.
    fn add_changes(&self, arena: &mut Arena<'_>, pool: &mut Pool, looks: &[Look]) -> Result<()> {
        let open = pool.open(arena);
        let open = looks.iter().filter(|look| open.binary_search(&look.entry).is_ok());
        let mut looks: Vec<Look> = open.cloned().collect();
        let mut trials = Vec::new();
        for _ in 0..MOST {
            let mut next = Vec::new();
            for look in &looks {
                let coherent = |changes: &Changes| self.is_coherent(arena, look.entry, changes);
                let mut valid = look.valid.iter().map(|one| with(&look.beside, one.change));
                match valid.find(coherent) {
                    Some(changes) => trials.push(Trial { entry: look.entry, changes }),
                    None => next.extend(self.nearer(arena, look)),
                }
            }
            let reached: Vec<(u32, f64)> =
                next.iter().map(|(entry, _, margin)| (*entry, *margin)).collect();
            let next = next.into_iter().map(|(entry, changes, _)| (entry, changes)).collect();
            looks = self.look(arena, next)?.unwrap_or_default();
            for look in &mut looks {
                let at = reached.binary_search_by_key(&look.entry, |(entry, _)| *entry);
                look.reached = at.map_or(f64::INFINITY, |at| reached[at].1);
            }
        }
        pool.judge(arena, trials, Source::Candidate)
    }

    /// The changes beside which something was looked for, with the one that brings the model nearest to the target,
    /// and nearer than it was; and how near.
    fn nearer(&self, arena: &Arena<'_>, look: &Look) -> Option<(u32, Changes, f64)> {
        let told = look.margins.iter().zip(&look.values);
        let mut nearer: Vec<(f64, (usize, Values))> = told
            .filter(|(margin, _)| **margin > look.reached)
            .map(|(margin, value)| (*margin, *value))
            .collect();
        nearer.sort_by(|one, two| two.0.total_cmp(&one.0));
        nearer.into_iter().find_map(|(margin, value)| {
            let changes = with(&look.beside, nearest(arena, look.entry, value)?);
            let coherent = self.is_coherent(arena, look.entry, &changes);
            coherent.then_some((look.entry, changes, margin))
        })
    }

    /// Looks along one feature of each of some changes, beside the others.
    fn look_along<'c>(
        &self,
        arena: &mut Arena<'_>,
        changed: impl Iterator<Item = (u32, &'c Changes, usize)>,
    ) -> Result<Option<Vec<Look>>> {
        let rows = changed.map(|(entry, changes, feature)| {
            let mut beside = changes.clone();
            beside.retain(|change| change.feature != feature);
            let reach = self.reach(arena, entry, |free| free == feature);
            (entry, beside, reach)
        });
        let rows = rows.collect();
        self.look_within(arena, rows)
    }

    /// The changes that a look was taken beside, with its best valid one; none if there is none.
    fn best_beside(&self, arena: &Arena<'_>, look: &Look) -> Option<Changes> {
        let mut valid = look.valid.iter().map(|one| with(&look.beside, one.change));
        valid.find(|changes| self.is_coherent(arena, look.entry, changes))
    }

    /// Moves every value of answers with several changes to where it costs least beside the others, or back.
    pub(super) fn polish(
        &self,
        arena: &mut Arena<'_>,
        pool: &mut Pool,
        entries: &[u32],
    ) -> Result<()> {
        let several = |entry: &u32| {
            let best = self.best(arena, pool, *entry as usize)?;
            (best.changes.len() > 1).then(|| (*entry, best.changes.clone(), best.by))
        };
        let start: Vec<(u32, Changes, Source)> = entries.iter().filter_map(several).collect();
        let mut items = start.clone();
        let most = items.iter().map(|(_, changes, _)| changes.len()).max().unwrap_or(0);
        for turn in 0..ROUNDS * most {
            let asked =
                items.iter().zip(&start).filter_map(|((entry, changes, _), (_, all, _))| {
                    let feature =
                        all.get(turn % all.len()).filter(|_| turn < ROUNDS * all.len())?.feature;
                    Some((*entry, changes, feature))
                });
            for look in self.look_along(arena, asked)?.unwrap_or_default() {
                let at = items.binary_search_by_key(&look.entry, |(entry, ..)| *entry);
                if let (Ok(at), Some(changes)) = (at, self.best_beside(arena, &look)) {
                    items[at].1 = changes;
                }
            }
        }
        let moved = items.into_iter().zip(&start).filter(|(new, old)| new.1 != old.1);
        let moved = moved.map(|((entry, changes, by), _)| (Trial { entry, changes }, by));
        let (trials, means): (Vec<Trial>, Vec<Source>) = moved.unzip();
        pool.judge_each(arena, trials, &means)
    }
}

/// What a model has shown along features.
struct Seen<'s> {
    values: &'s [(usize, Values)],
    margins: &'s [f64],
    /// Whether more margin than needed is worth something.
    prizes: bool,
}

impl Seen<'_> {
    /// The changes that may be the best of their feature: of numbers, going away from the original, only those with
    /// more margin than all before. `near` gives the change to a value; none if it is not valid, or not allowed.
    fn worthwhile(
        &self,
        near: impl Fn(usize) -> Option<Change>,
        own: impl Fn(usize) -> Cell,
    ) -> Vec<(usize, Change)> {
        let mut found = Vec::new();
        let mut first = 0;
        for of in self.values.chunk_by(|one, two| one.0 == two.0) {
            let (start, end) = (first, first + of.len());
            first = end;
            let Cell::Number(own) = own(of[0].0) else {
                found.extend((start..end).filter_map(|at| Some((at, near(at)?))));
                continue;
            };
            let below = |(_, values): &(usize, Values)| match values {
                Values::Numbers(_, high) => *high < own,
                Values::Code(_) => false,
            };
            let middle = start + of.partition_point(below);
            self.outwards((start..middle).rev(), &near, &mut found);
            self.outwards(middle..end, &near, &mut found);
        }
        found
    }

    fn outwards(
        &self,
        values: impl Iterator<Item = usize>,
        near: &impl Fn(usize) -> Option<Change>,
        found: &mut Vec<(usize, Change)>,
    ) {
        let mut best = f64::NEG_INFINITY;
        for at in values {
            if self.margins[at] > best
                && let Some(change) = near(at)
            {
                best = self.margins[at];
                found.push((at, change));
                if !self.prizes {
                    break;
                }
            }
        }
    }
}

impl Look {
    /// Its valid proposals with what is beside them: the best of each feature, by score.
    fn best<'l>(
        &'l self,
        coherent: impl Fn(&[Change]) -> bool + 'l,
    ) -> impl Iterator<Item = (f64, Changes)> + 'l {
        let mut features: Vec<usize> = Vec::new();
        let best = self.valid.iter().filter_map(move |proposal| {
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
}

/// Changes with one more, in the order of the features.
fn with(changes: &Changes, change: Change) -> Changes {
    let mut all = changes.clone();
    let at = all.partition_point(|one| one.feature < change.feature);
    all.insert(at, change);
    all
}

/// Of a feature's values the allowed one that is nearest to the original; none if the original is among them, or
/// nothing is allowed.
fn nearest(arena: &Arena<'_>, entry: u32, (feature, values): (usize, Values)) -> Option<Change> {
    let cell = match (values, arena.own(entry, feature)) {
        (Values::Code(code), _) => Cell::Code(code),
        (Values::Numbers(low, high), Cell::Number(own)) => {
            let plateau = Plateau { low, high };
            if plateau.contains(own) {
                return None;
            }
            Cell::Number(plateau.nearest_to(arena.room(entry), feature, own)?)
        }
        _ => return None,
    };
    Some(Change { feature, cell })
}
