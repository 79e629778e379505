//! The diagnosis: experiments that tell why equal runs of a transaction differ.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pannier_runtime::Nf;

use super::bench::Bench;
use super::failure::Cause;
use super::outcome::Outcome;

/// Runs in each sample.
const RUNS: usize = 32;

/// Runs without a pause between them, before those with one.
const FAST: usize = 8;

/// Runs of fresh instances in which outcomes of an order may recur.
const MANY: usize = 512;

/// How long a coarse clock is given to show: more than a second.
pub(super) const COARSE: Duration = Duration::from_millis(1_100);

/// How long it is given where nobody wants to wait.
const QUICK: Duration = Duration::from_millis(30);

/// A cause, and what was seen of it.
pub(super) type Verdict = (Cause, String);

/// Runs one transaction on the live instance and on fresh ones.
pub(super) struct Experiments<'a, N: Nf> {
    pub(super) bench: &'a Bench<'a, N>,
    pub(super) live: &'a N,
    pub(super) factory: &'a dyn Fn() -> N,
    /// No waiting for coarse clocks.
    pub(super) quick: bool,
}

/// Outcomes in the order of their runs.
struct Samples {
    /// Each of another fresh instance.
    fresh: Vec<Outcome>,
    /// All of one fresh instance.
    again: Vec<Outcome>,
    /// All of the live instance.
    live: Vec<Outcome>,
}

impl<N: Nf> Experiments<'_, N> {
    /// Tells why runs of the transaction differ.
    ///
    /// # Errors
    /// What the network function panicked with.
    pub(super) fn diagnose(&self) -> Result<Verdict, String> {
        if self.grows_with_time(self.live)? || self.grows_with_time(&(self.factory)())? {
            let seen = "a number in the outcome grows with the time that passes between runs";
            return Ok((Cause::Clock, seen.to_owned()));
        }
        let earlier = self.sample()?;
        let samples = self.sample()?;
        // A clock that has ticked meanwhile does not tick at the same run again.
        let counts_runs = !agree(&samples.again) && samples.again == earlier.again;
        let (live, fresh) = (&samples.live[0], &samples.fresh[0]);
        match (agree(&samples.fresh), samples.is_settled()) {
            (true, _) if !counts_runs && self.moves_on(&samples)? => {
                let seen = "equal runs agree at one moment, and another outcome comes when time has passed";
                Ok((Cause::Clock, seen.to_owned()))
            }
            (true, true) if live == fresh => {
                let seen = format!("{RUNS} fresh instances agree now, and the first run did not");
                Ok((Cause::SharedState, seen))
            }
            (true, true) => {
                let seen = format!("the running instance always does one thing, {RUNS} fresh ones another");
                Ok((Cause::StateOutsideTables, seen))
            }
            (true, false) => {
                let outcomes = distinct(&samples.again).max(distinct(&samples.live));
                let seen = format!(
                    "{RUNS} fresh instances agree; one instance did {outcomes} things in {RUNS} runs"
                );
                Ok((Cause::HiddenState, seen))
            }
            (false, _) => self.among_fresh(&samples),
        }
    }

    /// Why fresh instances differ from each other.
    fn among_fresh(&self, samples: &Samples) -> Result<Verdict, String> {
        let digests = self.fresh_digests(MANY)?;
        let mut counts: HashMap<u64, usize> = HashMap::new();
        digests.iter().for_each(|digest| *counts.entry(*digest).or_default() += 1);
        let seen = format!("{} fresh instances did {} things", digests.len(), counts.len());
        if counts.len() == 1 {
            // They agree now and did not before: something moved on its own, or was moved once.
            let cause = if self.moves_on(&self.sample()?)? { Cause::Clock } else { Cause::SharedState };
            return Ok((cause, format!("{seen}, and another one before")));
        }
        if has_streaks(&digests, &counts) {
            return Ok((Cause::Clock, format!("{seen}, each for a while")));
        }
        if is_periodic(&digests) {
            return Ok((Cause::SharedState, format!("{seen}, in turn")));
        }
        if counts_up(&samples.fresh) {
            return Ok((Cause::SharedState, format!("{seen}: a number in the outcome counts the runs")));
        }
        if counts.len() == digests.len() {
            return Ok((Cause::Randomness, seen));
        }
        let seen = if agree(&samples.again) { format!("{seen}, one instance always the same") } else { seen };
        Ok((Cause::IterationOrder, format!("{seen}, in no order")))
    }

    fn sample(&self) -> Result<Samples, String> {
        let runs = |nf: &N| (0..RUNS).map(|_| self.bench.on(nf)).collect::<Result<Vec<_>, _>>();
        Ok(Samples {
            fresh: (0..RUNS).map(|_| self.bench.on(&(self.factory)())).collect::<Result<_, _>>()?,
            again: runs(&(self.factory)())?,
            live: runs(self.live)?,
        })
    }

    /// The outcomes of up to `most` fresh instances, fewer where they take long.
    fn fresh_digests(&self, most: usize) -> Result<Vec<u64>, String> {
        let (mut digests, began) = (Vec::new(), Instant::now());
        while digests.len() < RUNS || digests.len() < most && began.elapsed() < COARSE {
            digests.push(self.bench.on(&(self.factory)())?.digest());
        }
        Ok(digests)
    }

    /// Whether some number in the outcome never shrinks from run to run, and grows faster where time passes between
    /// runs. A counter grows with the runs alone.
    fn grows_with_time(&self, nf: &N) -> Result<bool, String> {
        let mut runs = Vec::new();
        for pause in [0; FAST].into_iter().chain([12; 5]) {
            sleep(Duration::from_millis(pause));
            runs.push(self.bench.on(nf)?.flat());
        }
        let len = runs[0].len();
        if runs.iter().any(|run| run.len() != len) {
            return Ok(false);
        }
        Ok(numbers(&runs).any(|number| {
            let mut steps: Vec<u64> = number.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
            let slowest = steps[FAST - 1..].iter().copied().min().unwrap_or(0);
            steps[..FAST - 1].sort_unstable(); // one of them may have been interrupted
            number.is_sorted() && slowest > 8 * steps[FAST / 2 - 1]
        }))
    }

    /// Whether an instance does something else when time has passed: one that is new then, one that was new before,
    /// or the live one.
    fn moves_on(&self, samples: &Samples) -> Result<bool, String> {
        let (aging, began) = ((self.factory)(), Instant::now());
        let patience = if self.quick { QUICK } else { COARSE };
        while began.elapsed() < patience {
            sleep(Duration::from_millis(1));
            let (new, old, live) =
                (self.bench.on(&(self.factory)())?, self.bench.on(&aging)?, self.bench.on(self.live)?);
            let others_move = old != samples.fresh[0] || live != samples.live[0];
            if new != samples.fresh[0] || samples.is_settled() && others_move {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Samples {
    /// Whether no instance changes by what it does.
    fn is_settled(&self) -> bool {
        agree(&self.again) && agree(&self.live)
    }
}

fn agree(outcomes: &[Outcome]) -> bool {
    outcomes.windows(2).all(|pair| pair[0] == pair[1])
}

fn distinct(outcomes: &[Outcome]) -> usize {
    outcomes.iter().enumerate().filter(|(at, outcome)| !outcomes[..*at].contains(outcome)).count()
}

/// What the bytes at each place say in each run, read as a number in either byte order.
fn numbers(runs: &[Vec<u8>]) -> impl Iterator<Item = Vec<u64>> {
    let len = runs[0].len();
    let changes = move |at: &usize| runs.iter().any(|run| run[*at] != runs[0][*at]);
    (0..len).filter(changes).flat_map(move |at| {
        let little = move |run: &Vec<u8>| {
            let bytes = run[at..len.min(at + 8)].iter().rev();
            bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let big = move |run: &Vec<u8>| {
            let bytes = run[(at + 1).saturating_sub(8)..=at].iter();
            bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        [runs.iter().map(little).collect(), runs.iter().map(big).collect()]
    })
}

/// Whether some number in the outcomes grows by the same step from each run to the next.
fn counts_up(outcomes: &[Outcome]) -> bool {
    let runs: Vec<Vec<u8>> = outcomes.iter().map(Outcome::flat).collect();
    runs.iter().all(|run| run.len() == runs[0].len())
        && numbers(&runs).any(|number| {
            let step = number[1].wrapping_sub(number[0]);
            step != 0 && number.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == step)
        })
}

/// Whether the outcomes come in turn, again and again.
fn is_periodic(digests: &[u64]) -> bool {
    (2..=digests.len() / 4).any(|period| digests.iter().zip(&digests[period..]).all(|(a, b)| a == b))
}

/// Whether the outcome changes much more rarely than independent runs would let it.
fn has_streaks(digests: &[u64], counts: &HashMap<u64, usize>) -> bool {
    let runs = digests.len() as f64;
    let same: f64 = counts.values().map(|count| (*count as f64 / runs).powi(2)).sum();
    let changes = digests.windows(2).filter(|pair| pair[0] != pair[1]).count();
    counts.len() > 1 && (changes as f64) < runs * (1.0 - same) / 4.0
}
