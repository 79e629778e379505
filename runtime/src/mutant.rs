//! Mutants: rules of the protocol that can be switched off, to show that the checkers would notice.
//!
//! A build without the feature `mutants` has none of them: [`is`] is then a constant, and the code behind it is gone.

/// Declares the mutants with their names and what each does.
macro_rules! mutants {
    ($($variant:ident $name:literal $what:literal;)+) => {
        /// A rule that is broken on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Mutant { $(#[doc = $what] $variant,)+ }

        impl Mutant {
            /// Every mutant, in the order of the protocol.
            pub const ALL: &[Mutant] = &[$(Mutant::$variant,)+];

            /// The name on the command line and in tables.
            pub fn name(self) -> &'static str {
                match self { $(Mutant::$variant => $name,)+ }
            }

            /// What it does wrong.
            pub fn what(self) -> &'static str {
                match self { $(Mutant::$variant => $what,)+ }
            }
        }
    };
}

mutants! {
    RetryUnrestored "retry-unrestored" "a transaction that runs again finds the frame as its first attempt left it";
    NamelessRetry "nameless-retry" "a transaction that runs again in another unit does not name the one that it came with";
    AbortKeepsRandom "abort-keeps-random" "an abort does not take its random numbers back";
    ElidedReads "elided-reads" "records name no partition that was only read";
    DropLosesUnit "drop-loses-unit" "a dropped frame takes its unit with it";
    LostTimer "lost-timer" "the unit of a timer's transaction is neither sent nor retained";
    NamelessBurst "nameless-burst" "the later frames of a burst do not name its unit";
    StaleName "stale-name" "of the frames that come with one unit, those in a later unit of the node do not name it";
    NoReadWait "no-read-wait" "a replica applies records without waiting for what they read";
    DuplicateIgnoresReads "duplicate-ignores-reads" "a merged record whose writes are here does not wait for its reads";
    PerRecord "per-record" "records of a unit are applied one by one, not all or none";
    DifferingHash "differing-hash" "nodes place keys in partitions by hashes of their own";
    WrappingVersion "wrapping-version" "versions lose their high half on the wire";
    NoReleaseWait "no-release-wait" "the last node lets frames out before their commit";
    HoldIgnoresReads "hold-ignores-reads" "held frames wait for what they wrote, not for what they read";
    MixedHold "mixed-hold" "held frames wait for the unit of those that were held before them";
    NoBackwardWait "no-backward-wait" "inbound frames leave a node before their commit";
    HeldVanish "held-vanish" "frames that were held are not let out after their commit";
    NoRepair "no-repair" "units that got lost are not sent again";
    SingleRecordRepair "single-record-repair" "repair sends single records in place of whole units";
    RegressingCommit "regressing-commit" "a late acknowledgement takes the commit vector back";
    CommitIsApplied "commit-is-applied" "what the successor has applied counts as committed";
    AnyAddressee "any-addressee" "a node takes messages that are meant for another incarnation";
    NoFence "no-fence" "a node takes units from dead incarnations of its predecessor";
    LateFence "late-fence" "units that wait from a dead predecessor are kept when a view is adopted";
    SkippedView "skipped-view" "a node does not hear of every third view";
    TailIsSource "tail-is-source" "a new head takes its store from the tail";
    NoLogTransfer "no-log-transfer" "a replacement gets tables, but not the retained units";
    NoHeadLogTransfer "no-head-log-transfer" "as above, only for the store of a new head";
    OneLaneTransfer "one-lane-transfer" "a replacement gets the retained units of one lane only";
    OneLaneRepair "one-lane-repair" "a replacement repairs in one lane what came from several";
    SilentLane "silent-lane" "a lane other than the first does not tell what it has applied";
    LostInReshard "lost-in-reshard" "frames that wait in a node are lost when one shard takes it over from several";
    PanickedLane "panicked-lane" "a lane whose network function panicked goes on when one shard takes the node over";
    SplitTransfer "split-transfer" "a replacement gets retained units in parts";
    DoubledFetch "doubled-fetch" "a source begins anew when a question for state comes twice";
    TornSnapshot "torn-snapshot" "rows and versions of a snapshot are of different moments";
    UnrepairedSnapshot "unrepaired-snapshot" "what changes while a store is copied does not follow the copy";
}

impl std::str::FromStr for Mutant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Mutant::ALL.iter().find(|mutant| mutant.name() == name).copied();
        found.ok_or_else(|| {
            let names: Vec<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
            format!("no mutant is called `{name}`; there are {}", names.join(", "))
        })
    }
}

#[cfg(feature = "mutants")]
std::thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether `mutant` is at work in this thread.
#[cfg(feature = "mutants")]
pub(crate) fn is(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Whether `mutant` is at work: not in this build.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}

/// Sets `mutant` to work in this thread, in place of the one that was; returns that one.
#[cfg(feature = "mutants")]
pub fn activate(mutant: Option<Mutant>) -> Option<Mutant> {
    ACTIVE.replace(mutant)
}
