//! Campaigns: many schedules, side by side on the machine's cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::options::{Options, OptionsError};
use crate::run::{Failure, Kept, run};

/// What schedules came to, all together.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// Schedules that ended, the failing one among them.
    pub schedules: u64,
    /// Their packets that left.
    pub released: u64,
    /// Their nodes that were replaced and caught up.
    pub recoveries: u64,
    /// The failing schedule that comes first.
    pub failure: Option<Box<Failure>>,
}

impl Sum {
    fn add(&mut self, first: u64, ended: Result<Kept, Box<Failure>>) {
        self.schedules += 1;
        match ended {
            Ok(kept) => {
                self.released += kept.released;
                self.recoveries += kept.recoveries;
            }
            Err(failure) => {
                let place = |failure: &Failure| failure.options.seed.wrapping_sub(first);
                if self.failure.as_ref().is_none_or(|earlier| place(&failure) < place(earlier)) {
                    self.failure = Some(failure);
                }
            }
        }
    }
}

/// Runs `runs` schedules, of the seed `first` and those that follow, on `threads` threads, until one breaks a promise or `stop` is set. The failing
/// schedule that comes first is the same however many threads there are.
///
/// # Errors
/// Options that make no ring.
pub fn campaign(
    first: u64,
    runs: u64,
    threads: usize,
    options: impl Fn(u64) -> Options + Sync,
    stop: &AtomicBool,
    progress: impl Fn(&Sum) + Sync,
) -> Result<Sum, OptionsError> {
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let sum = Mutex::new(Ok(Sum::default()));
    let work = || {
        while !stop.load(Ordering::Relaxed) && !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= runs {
                return;
            }
            let ended = run(options(first.wrapping_add(number)));
            let mut sum = sum.lock().expect("no schedule panics while it holds the sum");
            match ended {
                Ok(ended) => {
                    failed.fetch_or(ended.is_err(), Ordering::Relaxed);
                    if let Ok(sum) = &mut *sum {
                        sum.add(first, ended);
                        progress(sum);
                    }
                }
                Err(error) => {
                    failed.store(true, Ordering::Relaxed);
                    *sum = Err(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    sum.into_inner().expect("no schedule panics while it holds the sum")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seeds_come_to_the_same_on_any_number_of_threads() {
        // Goal: a campaign is a function of its seeds. Method: the same ones on one, two and five threads.
        let sum = |threads| {
            let stop = AtomicBool::new(false);
            let sum = campaign(7, 20, threads, |seed| Options::random(seed, 200), &stop, |_| {});
            let sum = sum.expect("random options are possible");
            assert!(sum.failure.is_none(), "{}", sum.failure.expect("looked at above").broken);
            (sum.schedules, sum.released, sum.recoveries)
        };
        assert_eq!(sum(1), sum(2));
        assert_eq!(sum(1), sum(5));
    }

    #[test]
    fn options_that_make_no_ring_end_it_with_an_error() {
        // Goal: a sentence, not a panic. Method: no stage.
        let none = |seed| Options { stages: 0, ..Options::random(seed, 10) };
        assert!(campaign(0, 3, 2, none, &AtomicBool::new(false), |_| {}).is_err());
    }
}
