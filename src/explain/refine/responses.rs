//! Counterfactuals from a model that shows what it would say if single features of a row had other values: the best
//! single change is read off, the best second change beside a first one too, and the numbers of larger counterfactuals
//! are moved to where they cost least. What is read off is asked about before it is believed.

use super::candidate_set::CandidateSet;
use super::plateaus::Plateau;
use super::query_cache::QueryCache;
use super::robust::Shown;
use super::{Change, Changes, Proposal};
use crate::encode::Slots;
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;
use crate::metrics::Source;
use crate::predictor::{Reach, Values};
use crate::target::is_valid;

/// Looks that are taken together.
const AT_ONCE: usize = 256;
/// Proposals of one look that are asked about.
const QUERIED: usize = 2;
/// A counterfactual that costs less needs no pair to compete with it.
const EXPENSIVE: f64 = 0.8;
/// First changes that a second one is looked for beside.
const FIRST_CHANGES: usize = 4;
/// Share of a feature's greatest gain that a cheaper value must bring to be the first of a pair.
const NEARLY: f64 = 0.8;
/// Changes that are added one after the other, at most, where two are not enough.
const MOST: usize = 8;
/// Rounds in which the values of a counterfactual are moved to where they cost least.
const ROUNDS: usize = 2;

/// A valid single change beside others, by what the model says of it up to rounding.
#[derive(Debug, Clone)]
struct ValidChange {
    change: Change,
    /// What it costs less what it gains, without the changes beside it.
    score: f64,
}

/// What was found about one request.
#[derive(Debug, Clone)]
struct RequestResponses {
    request: u32,
    /// Changes that are there already.
    beside: Changes,
    /// Those that get the target, with the margin that the request is held to; ascending by score.
    valid: Vec<ValidChange>,
    /// Everything that was seen, and how far inside the target it is, under the models beside the predictor too.
    values: Vec<(usize, Values)>,
    margins: Vec<f64>,
    /// How far inside the target the changes beside are, as far as that was seen.
    reached: f64,
}

impl Worker {
    /// Finds the best single changes of all requests, the best pairs of those that need them, and more changes for
    /// those that need more. False where the model does not show what it would say.
    pub(super) fn improve_by_responses(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
    ) -> Result<bool> {
        if self.follows_formulas() {
            return Ok(false);
        }
        let all = (0..cache.len() as u32).map(|request| (request, Changes::new())).collect();
        let Some(looks) = self.look(cache, all)? else { return Ok(false) };
        self.query_best(cache, candidates, &looks)?;
        let expensive = self.expensive(cache, candidates, EXPENSIVE);
        let looked = looks.iter().filter(|look| expensive.binary_search(&look.request).is_ok());
        let first_changes = looked.flat_map(|look| {
            let first_changes = self.first_changes(cache, look).into_iter();
            first_changes.map(|first| (look.request, Changes::from_slice(&[first])))
        });
        let first_changes = first_changes.collect();
        let pairs = self.look(cache, first_changes)?.unwrap_or_default();
        self.query_best(cache, candidates, &pairs)?;
        self.add_changes(cache, candidates, &looks)?;
        Ok(true)
    }

    /// Looks for counterfactuals to requests that have none, one change after the other.
    pub(super) fn solve_by_responses(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
    ) -> Result<()> {
        let open = candidates.open(cache);
        if open.is_empty() || self.follows_formulas() {
            return Ok(());
        }
        let rows = open.iter().map(|request| (*request, Changes::new())).collect();
        let Some(looks) = self.look(cache, rows)? else { return Ok(()) };
        self.add_changes(cache, candidates, &looks)?;
        self.polish(cache, candidates, &open)
    }

    /// Whether features follow from others: what a change does is not seen from the model alone then.
    pub(super) fn follows_formulas(&self) -> bool {
        let features = self.shared.refiner.layout.slots.len();
        (0..features).any(|feature| self.shared.constraints.is_followed(feature))
    }

    /// Looks at everything that one more change may do beside others, request by request. Requests about which nothing
    /// more may be asked are left out.
    fn look(
        &self,
        cache: &mut QueryCache<'_>,
        beside: Vec<(u32, Changes)>,
    ) -> Result<Option<Vec<RequestResponses>>> {
        let rows: Vec<(u32, Changes, Vec<Reach>)> = beside
            .into_iter()
            .map(|(request, beside)| {
                let free = |feature: usize| !beside.iter().any(|one| one.feature == feature);
                let reach = self.reach(cache, request, free);
                (request, beside, reach)
            })
            .collect();
        self.look_within(cache, rows)
    }

    /// The same where it is said what features may become.
    fn look_within(
        &self,
        cache: &mut QueryCache<'_>,
        rows: Vec<(u32, Changes, Vec<Reach>)>,
    ) -> Result<Option<Vec<RequestResponses>>> {
        let mut looks = Vec::with_capacity(rows.len());
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let some: Vec<_> = rows.by_ref().take(AT_ONCE).collect();
            let Some(found) = cache.responses(&some)? else { return Ok(None) };
            let others = cache.robust_responses(&some, &found)?;
            let found = found.into_iter().zip(others);
            for ((request, beside, _), (found, others)) in some.into_iter().zip(found) {
                let Some(found) = found else { continue };
                let shown = cache.beside_models(request, found, &others);
                let (look, fragile) = self.seen(cache, (request, beside), shown);
                fragile.iter().for_each(|changes| cache.note_fragile(request, changes));
                looks.push(look);
            }
        }
        Ok(Some(looks))
    }

    /// What the features of a request's row may become.
    pub(super) fn reach(
        &self,
        cache: &QueryCache<'_>,
        request: u32,
        free: impl Fn(usize) -> bool,
    ) -> Vec<Reach> {
        let feasible = cache.feasible(request);
        let slots = self.shared.refiner.layout.slots.iter().enumerate();
        let reach =
            |(feature, slots): (usize, &Slots)| match (slots, cache.original(request, feature)) {
                _ if !free(feature) => Reach::Fixed,
                (Slots::Numeric(_), Cell::Number(original)) => {
                    match feasible.interval(feature, original) {
                        Some((low, high)) => Reach::Numbers(low.min(original), high.max(original)),
                        None => Reach::Fixed,
                    }
                }
                (Slots::Categorical(slots), Cell::Code(original)) => {
                    let codes = 0..slots.values as u32;
                    let codes: Vec<u32> = codes
                        .filter(|code| {
                            *code != original && feasible.allows(feature, *code, original)
                        })
                        .collect();
                    if codes.is_empty() { Reach::Fixed } else { Reach::Codes(codes) }
                }
                _ => Reach::Fixed,
            };
        slots.map(reach).collect()
    }

    /// What a model shows of a request's row. Of numbers for which it says the same only the nearest to the original
    /// is a proposal. Also gives changes that hold under too few of the models beside the predictor.
    fn seen(
        &self,
        cache: &QueryCache<'_>,
        (request, beside): (u32, Changes),
        shown: Shown,
    ) -> (RequestResponses, Vec<Changes>) {
        let targets = cache.batch.targets.take(&vec![request; shown.values.len()]);
        let decided = is_valid(&shown.scores, &targets);
        let margins = shown.margins(&targets, self);
        let accepted: Vec<bool> = decided
            .into_iter()
            .zip(&margins)
            .map(|(decided, margin)| decided && cache.reaches(request, *margin))
            .collect();
        let robust = |at: usize| cache.would_be_robust(request, shown.held_at(at));
        let fragile = (0..accepted.len()).filter(|at| accepted[*at] && !robust(*at));
        let fragile = fragile.filter_map(|at| nearest(cache, request, shown.values[at]));
        let fragile = fragile.map(|change| with(&beside, change)).collect();
        let valid: Vec<bool> = (0..accepted.len()).map(|at| accepted[at] && robust(at)).collect();
        let together = shown.together(&margins);
        let Shown { values, weakest, .. } = shown;
        let seen =
            Seen { values: &values, margins: &together, margin_counts: cache.margin_counts() };
        let change_to = |at: usize| nearest(cache, request, values[at]).filter(|_| valid[at]);
        let found = seen.worthwhile(change_to, |feature| cache.original(request, feature));
        let ranked = found.into_iter().map(|(at, change)| {
            let score = self.score(cache, request, &[change]) - cache.value_of_margin(together[at]);
            ValidChange { change, score }
        });
        let mut ranked: Vec<ValidChange> = ranked.collect();
        ranked.sort_by(|one, two| one.score.total_cmp(&two.score));
        // The way to the target goes by the model that is farthest from it of those that are needed.
        let margins = margins.iter().zip(weakest).map(|(own, weakest)| own.min(weakest)).collect();
        let reached = f64::NEG_INFINITY;
        (RequestResponses { request, beside, valid: ranked, values, margins, reached }, fragile)
    }

    /// The changes beside which a second one is looked for: of the features that bring the model nearest the
    /// cheapest value that nearly does.
    fn first_changes(&self, cache: &QueryCache<'_>, look: &RequestResponses) -> Vec<Change> {
        let base = look.margins.iter().copied().fold(f64::INFINITY, f64::min);
        let shown = || look.values.iter().zip(&look.margins);
        let mut gains: Vec<(f64, usize)> = Vec::new();
        for (feature, margins) in shown().map(|((feature, _), margin)| (*feature, *margin - base)) {
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
            let changes = shown()
                .filter(enough)
                .filter_map(|(value, _)| nearest(cache, look.request, *value));
            let cost = |change: &Change| self.cost(cache, look.request, change);
            changes.min_by(|one, two| cost(one).total_cmp(&cost(two)))
        };
        gains.into_iter().take(FIRST_CHANGES).filter_map(cheapest).collect()
    }

    pub(super) fn cost(&self, cache: &QueryCache<'_>, request: u32, change: &Change) -> f64 {
        self.shared.refiner.costs.of(change, cache.original(request, change.feature))
    }

    /// Asks about the best valid ranked: of every request a few, of different features.
    fn query_best(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        looks: &[RequestResponses],
    ) -> Result<()> {
        let mut proposals: Vec<(f64, Proposal)> = Vec::new();
        for looks in looks.chunk_by(|one, two| one.request == two.request) {
            let mut best: Vec<(f64, Proposal)> = Vec::new();
            for look in looks {
                let beside = self.score(cache, look.request, &look.beside);
                let valid = look.best(|changes| self.is_coherent(cache, look.request, changes));
                let proposal = |(score, changes): (f64, Changes)| {
                    (beside + score, Proposal { request: look.request, changes })
                };
                best.extend(valid.map(proposal));
            }
            best.sort_by(|one, two| one.0.total_cmp(&two.0));
            best.dedup_by(|one, two| one.1 == two.1);
            proposals.extend(best.into_iter().take(QUERIED));
        }
        let proposals = proposals.into_iter().map(|(_, proposal)| proposal).collect();
        candidates.evaluate(cache, proposals, Source::Candidate)
    }

    pub(super) fn is_coherent(
        &self,
        cache: &QueryCache<'_>,
        request: u32,
        changes: &[Change],
    ) -> bool {
        self.shared.constraints.is_coherent(changes, |feature| cache.original(request, feature))
    }

    /// Adds changes one after the other for requests that neither one nor two solve: always the one that brings the
    /// model nearest to the target, until one gets there.
    fn add_changes(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        looks: &[RequestResponses],
    ) -> Result<()> {
        let open = candidates.open(cache);
        let open = looks.iter().filter(|look| open.binary_search(&look.request).is_ok());
        let mut looks: Vec<RequestResponses> = open.cloned().collect();
        let mut proposals = Vec::new();
        for _ in 0..MOST {
            let mut next = Vec::new();
            for look in &looks {
                let coherent = |changes: &Changes| self.is_coherent(cache, look.request, changes);
                let mut valid = look.valid.iter().map(|one| with(&look.beside, one.change));
                match valid.find(coherent) {
                    Some(changes) => proposals.push(Proposal { request: look.request, changes }),
                    None => next.extend(self.nearer(cache, look)),
                }
            }
            let reached: Vec<(u32, f64)> =
                next.iter().map(|(request, _, margin)| (*request, *margin)).collect();
            let next = next.into_iter().map(|(request, changes, _)| (request, changes)).collect();
            looks = self.look(cache, next)?.unwrap_or_default();
            for look in &mut looks {
                let at = reached.binary_search_by_key(&look.request, |(request, _)| *request);
                look.reached = at.map_or(f64::INFINITY, |at| reached[at].1);
            }
        }
        candidates.evaluate(cache, proposals, Source::Candidate)
    }

    /// The changes beside which something was looked for, with the one that brings the model nearest to the target,
    /// and nearer than it was; and how near.
    fn nearer(
        &self,
        cache: &QueryCache<'_>,
        look: &RequestResponses,
    ) -> Option<(u32, Changes, f64)> {
        let shown = look.margins.iter().zip(&look.values);
        let mut nearer: Vec<(f64, (usize, Values))> = shown
            .filter(|(margin, _)| **margin > look.reached)
            .map(|(margin, value)| (*margin, *value))
            .collect();
        nearer.sort_by(|one, two| two.0.total_cmp(&one.0));
        nearer.into_iter().find_map(|(margin, value)| {
            let changes = with(&look.beside, nearest(cache, look.request, value)?);
            let coherent = self.is_coherent(cache, look.request, &changes);
            coherent.then_some((look.request, changes, margin))
        })
    }

    /// Looks along one feature of each of some changes, beside the others.
    fn look_along<'c>(
        &self,
        cache: &mut QueryCache<'_>,
        changed: impl Iterator<Item = (u32, &'c Changes, usize)>,
    ) -> Result<Option<Vec<RequestResponses>>> {
        let rows = changed.map(|(request, changes, feature)| {
            let mut beside = changes.clone();
            beside.retain(|change| change.feature != feature);
            let reach = self.reach(cache, request, |free| free == feature);
            (request, beside, reach)
        });
        let rows = rows.collect();
        self.look_within(cache, rows)
    }

    /// The changes that a look was taken beside, with its best valid one; none if there is none.
    fn best_beside(&self, cache: &QueryCache<'_>, look: &RequestResponses) -> Option<Changes> {
        let mut valid = look.valid.iter().map(|one| with(&look.beside, one.change));
        valid.find(|changes| self.is_coherent(cache, look.request, changes))
    }

    /// Moves every value of counterfactuals with several changes to where it costs least beside the others, or back.
    pub(super) fn polish(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        requests: &[u32],
    ) -> Result<()> {
        let several = |request: &u32| {
            let best = self.best(cache, candidates, *request as usize)?;
            (best.changes.len() > 1).then(|| (*request, best.changes.clone(), best.source))
        };
        let start: Vec<(u32, Changes, Source)> = requests.iter().filter_map(several).collect();
        let mut items = start.clone();
        let most = items.iter().map(|(_, changes, _)| changes.len()).max().unwrap_or(0);
        for turn in 0..ROUNDS * most {
            let batch =
                items.iter().zip(&start).filter_map(|((request, changes, _), (_, all, _))| {
                    let feature =
                        all.get(turn % all.len()).filter(|_| turn < ROUNDS * all.len())?.feature;
                    Some((*request, changes, feature))
                });
            for look in self.look_along(cache, batch)?.unwrap_or_default() {
                let at = items.binary_search_by_key(&look.request, |(request, ..)| *request);
                if let (Ok(at), Some(changes)) = (at, self.best_beside(cache, &look)) {
                    items[at].1 = changes;
                }
            }
        }
        let moved = items.into_iter().zip(&start).filter(|(new, old)| new.1 != old.1);
        let moved =
            moved.map(|((request, changes, source), _)| (Proposal { request, changes }, source));
        let (proposals, sources): (Vec<Proposal>, Vec<Source>) = moved.unzip();
        candidates.evaluate_each(cache, proposals, &sources)
    }
}

/// What a model has shown along features.
struct Seen<'s> {
    values: &'s [(usize, Values)],
    margins: &'s [f64],
    /// Whether more margin than needed is worth something.
    margin_counts: bool,
}

impl Seen<'_> {
    /// The changes that may be the best of their feature: of numbers, going away from the original, only those with
    /// more margin than all before. `nearby` gives the change to a value; none if it is not valid, or not allowed.
    fn worthwhile(
        &self,
        change_to: impl Fn(usize) -> Option<Change>,
        original: impl Fn(usize) -> Cell,
    ) -> Vec<(usize, Change)> {
        let mut found = Vec::new();
        let mut first = 0;
        for of in self.values.chunk_by(|one, two| one.0 == two.0) {
            let (start, end) = (first, first + of.len());
            first = end;
            let Cell::Number(original) = original(of[0].0) else {
                found.extend((start..end).filter_map(|at| Some((at, change_to(at)?))));
                continue;
            };
            let below = |(_, values): &(usize, Values)| match values {
                Values::Numbers(_, high) => *high < original,
                Values::Code(_) => false,
            };
            let middle = start + of.partition_point(below);
            self.outwards((start..middle).rev(), &change_to, &mut found);
            self.outwards(middle..end, &change_to, &mut found);
        }
        found
    }

    fn outwards(
        &self,
        values: impl Iterator<Item = usize>,
        change_to: &impl Fn(usize) -> Option<Change>,
        found: &mut Vec<(usize, Change)>,
    ) {
        let mut best = f64::NEG_INFINITY;
        for at in values {
            if self.margins[at] > best
                && let Some(change) = change_to(at)
            {
                best = self.margins[at];
                found.push((at, change));
                if !self.margin_counts {
                    break;
                }
            }
        }
    }
}

impl RequestResponses {
    /// Its valid ranked with what is beside them: the best of each feature, by score.
    fn best<'l>(
        &'l self,
        coherent: impl Fn(&[Change]) -> bool + 'l,
    ) -> impl Iterator<Item = (f64, Changes)> + 'l {
        let mut features: Vec<usize> = Vec::new();
        let best = self.valid.iter().filter_map(move |valid| {
            if features.contains(&valid.change.feature) {
                return None;
            }
            let changes = with(&self.beside, valid.change);
            coherent(&changes).then(|| {
                features.push(valid.change.feature);
                (valid.score, changes)
            })
        });
        best.take(QUERIED)
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
fn nearest(
    cache: &QueryCache<'_>,
    request: u32,
    (feature, values): (usize, Values),
) -> Option<Change> {
    let cell = match (values, cache.original(request, feature)) {
        (Values::Code(code), _) => Cell::Code(code),
        (Values::Numbers(low, high), Cell::Number(original)) => {
            let plateau = Plateau { low, high };
            if plateau.contains(original) {
                return None;
            }
            Cell::Number(plateau.nearest_to(cache.feasible(request), feature, original)?)
        }
        _ => return None,
    };
    Some(Change { feature, cell })
}
