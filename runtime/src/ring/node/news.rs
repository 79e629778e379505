//! News: how a lane hears that another applied or committed something that it may wait for.
//!
//! Whoever has changed a vector counts here afterwards. Whoever waits looks at the count first and at the vectors then: so
//! either it sees the change, or it will find the count another than it was.

use crate::sync::{AtomicU64, Ordering};

/// How often something has changed. It has a pair of cache lines of its own: what lies beside it is read for each packet.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct News(AtomicU64);

impl Default for News {
    fn default() -> Self {
        News(AtomicU64::new(0))
    }
}

impl News {
    /// Something has changed. Where `shared` is false nobody else is at it.
    pub(super) fn tell(&self, shared: bool) {
        if shared {
            self.0.fetch_add(1, Ordering::Release);
        } else {
            self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Whether there is anything since the count was `seen`, which it brings up to date. What has changed until then is
    /// seen from now on.
    pub(super) fn look(&self, seen: &mut u64) -> bool {
        let count = self.0.load(Ordering::Acquire);
        std::mem::replace(seen, count) != count
    }

    /// Whether a look would find anything.
    pub(super) fn is_past(&self, seen: u64) -> bool {
        self.0.load(Ordering::Relaxed) != seen
    }

    /// Goes on from where `other` is.
    #[cfg(feature = "simulation")]
    pub(super) fn copy_from(&self, other: &News) {
        self.0.store(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::dependency::{LiveVector, Vector, Versions};

    /// A lane as far as it waits for version `wanted` of partition 0: the looks of `Lane::arrive` and `Lane::settle`.
    struct Waiter {
        wanted: u64,
        seen: u64,
        waits: bool,
    }

    impl Waiter {
        fn turn(&mut self, arrives: bool, vector: &LiveVector, news: &News) {
            let is_here = || vector.version(0) >= self.wanted;
            if arrives {
                self.waits = !is_here();
            }
            while news.look(&mut self.seen) && self.waits {
                self.waits = vector.version(0) < self.wanted;
            }
        }

        fn has_news(&self, news: &News) -> bool {
            self.waits && news.is_past(self.seen)
        }
    }

    #[test]
    fn loom_no_waiter_misses_what_another_lane_applies() {
        // Goal: who looked before a change finds the count another afterwards. Method: every interleaving of two lanes
        // that raise a version one after the other, as holders of the partition do, and one that waits for the second.
        loom::model(|| {
            let shared = Arc::new((LiveVector::from(Vector::default()), News::default()));
            let other = Arc::clone(&shared);
            let writer = thread::spawn(move || {
                for version in 1..=2 {
                    other.0.set(0, version);
                    other.1.tell(true);
                }
            });
            let (vector, news) = &*shared;
            let mut waiter = Waiter { wanted: 2, seen: 0, waits: false };
            waiter.turn(false, vector, news);
            waiter.turn(true, vector, news);
            writer.join().expect("it does not panic");
            if waiter.waits {
                assert!(waiter.has_news(news), "nobody would look again");
                waiter.turn(false, vector, news);
            }
            assert!(!waiter.waits && !waiter.has_news(news));
        });
    }

    #[test]
    fn loom_a_commit_that_two_lanes_learn_is_told_once_at_least() {
        // Goal: as above, for commit vectors, which lanes raise without a claim. Method: two lanes learn two versions.
        loom::model(|| {
            let shared = Arc::new((LiveVector::from(Vector::default()), News::default()));
            let learn = |version: u64| {
                let shared = Arc::clone(&shared);
                move || {
                    if shared.0.raise(0, version, true) {
                        shared.1.tell(true);
                    }
                }
            };
            let (first, second) = (thread::spawn(learn(1)), thread::spawn(learn(2)));
            let (vector, news) = &*shared;
            let mut waiter = Waiter { wanted: 2, seen: 0, waits: false };
            waiter.turn(true, vector, news);
            first.join().expect("it does not panic");
            second.join().expect("it does not panic");
            if waiter.waits {
                assert!(waiter.has_news(news), "nobody would look again");
                waiter.turn(false, vector, news);
            }
            assert!(!waiter.waits && vector.version(0) == 2);
        });
    }

    #[test]
    fn loom_who_sees_a_version_sees_its_rows() {
        // Goal: what is acknowledged, copied or read by a version is there. Method: a cell beside the version.
        loom::model(|| {
            // Loom notes who is at a cell; there is no need to look into it.
            let row = loom::cell::UnsafeCell::new(());
            let shared = Arc::new((LiveVector::from(Vector::default()), row));
            let other = Arc::clone(&shared);
            let writer = thread::spawn(move || {
                other.1.with_mut(|_| ());
                other.0.set(0, 1);
            });
            if shared.0.version(0) == 1 {
                shared.1.with(|_| ());
            }
            writer.join().expect("it does not panic");
        });
    }

    #[test]
    fn loom_no_commit_is_seen_ahead_of_its_version() {
        // Goal: what is known to be committed is known to be here. Method: a lane applies, hears the commit, and raises it;
        // another looks at the commit first and at the version then.
        loom::model(|| {
            let vectors = || LiveVector::from(Vector::default());
            let shared = Arc::new((vectors(), vectors()));
            let other = Arc::clone(&shared);
            let writer = thread::spawn(move || {
                other.0.set(0, 1);
                other.1.raise(0, 1, true);
            });
            let committed = shared.1.version(0);
            assert!(shared.0.version(0) >= committed);
            writer.join().expect("it does not panic");
        });
    }
}
