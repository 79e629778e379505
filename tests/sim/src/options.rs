//! What a run is made of: with its seed, one value describes it completely.

use std::fmt;
use std::str::FromStr;

use pannier_runtime::entropy::Entropy;
use pannier_runtime::mutant::Mutant;
use pannier_runtime::ring::Plan;
use pannier_runtime::state::Layout;

use crate::provenance::Provenance;

/// What a run is made of. `Display` writes it on one line, `FromStr` reads that line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Seed of every choice.
    pub seed: u64,
    /// Stages of the chain.
    pub stages: usize,
    /// Failures that it survives.
    pub f: usize,
    /// Partitions of each store.
    pub partitions: usize,
    /// Packets per unit.
    pub unit: usize,
    /// MTU of the ring links in bytes.
    pub mtu: usize,
    /// Bytes of state that one message to a replacement carries, about: small ones make copies fuzzy.
    pub snapshot: usize,
    /// Version at which every partition begins: near 2³² to see short versions wrap.
    pub age: u64,
    /// How many accesses of a hundred meet a conflict, so that their transaction runs again.
    pub conflicts: usize,
    /// Lanes that flows are spread over; a node has as many shards, or fewer.
    pub lanes: usize,
    /// Random steps before the faults stop.
    pub steps: usize,
    /// The world of an exhaustive search: any message may be the next, nodes hear of the newest view only, and
    /// transactions that do the same have the same name.
    pub exhaustive: bool,
    /// The rule that is broken, in a build with mutants.
    pub mutant: Option<Mutant>,
}

impl Options {
    /// Options drawn from a seed, over the whole space.
    pub fn random(seed: u64, steps: usize) -> Self {
        let mut pick = Entropy::stream(seed, 77);
        let mut one_of = |choices: &[usize]| choices[pick.below(choices.len() as u64) as usize];
        Options {
            seed,
            stages: one_of(&[1, 2, 3, 4, 5, 6]),
            f: one_of(&[0, 1, 1, 2, 2, 3, 3]),
            partitions: one_of(&[1, 2, 4, 16, 64]),
            unit: one_of(&[1, 1, 2, 8, 64]),
            mtu: one_of(&[2_000, 3_500, 9_000]),
            snapshot: one_of(&[1, 100, 1 << 20]),
            age: one_of(&[0, 0, (1 << 32) - 8, (1 << 33) - 8]) as u64,
            conflicts: one_of(&[0, 0, 10]),
            lanes: one_of(&[1, 1, 2, 4]),
            steps,
            exhaustive: false,
            mutant: None,
        }
    }

    /// The ring that the options ask for. Its bounds are so small that runs reach them.
    ///
    /// # Errors
    /// A ring that can't be, with the way out.
    pub fn plan(&self) -> Result<Plan, OptionsError> {
        let mut plan = Plan::new(self.stages, self.f)?;
        plan.layout = Layout { partitions: self.partitions, hash_seed: self.seed };
        plan.unit_frames = self.unit;
        plan.lanes = self.lanes;
        plan.seed = self.seed;
        plan.limits.mtu = self.mtu;
        plan.limits.snapshot_bytes = self.snapshot;
        plan.limits.retained_bytes = 8_000;
        plan.limits.waiting = 24;
        plan.limits.held = 64;
        plan.check(Provenance::largest(&plan.layout))?;
        if self.age > MOST_AGE {
            return Err(OptionsError::Value(format!("age={}", self.age)));
        }
        Ok(plan)
    }
}

/// The oldest that partitions may begin: far beyond what any run adds.
const MOST_AGE: u64 = 1 << 60;

/// Why options can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// No ring can be made of them.
    #[error(transparent)]
    Plan(#[from] pannier_runtime::ring::PlanError),
    /// A word that is no option.
    #[error("`{0}` is no option of a run; there are {names}, exhaustive and mutant", names = NAMES.join(", "))]
    Unknown(String),
    /// An option that is not there: a run is described by all of them.
    #[error("the option `{0}` is missing")]
    Missing(&'static str),
    /// A value that makes no sense.
    #[error("`{0}` has no value that makes sense")]
    Value(String),
    /// A mutant that does not exist.
    #[error("{0}")]
    Mutant(String),
}

const NAMES: [&str; 11] =
    ["seed", "stages", "f", "partitions", "unit", "mtu", "snapshot", "age", "conflicts", "lanes", "steps"];

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options {
            seed,
            stages,
            f: failures,
            partitions,
            unit,
            mtu,
            snapshot,
            age,
            conflicts,
            lanes,
            steps,
            exhaustive,
            mutant,
        } = self;
        write!(f, "seed={seed} stages={stages} f={failures} partitions={partitions} unit={unit} mtu={mtu}")?;
        write!(f, " snapshot={snapshot} age={age} conflicts={conflicts} lanes={lanes} steps={steps}")?;
        if *exhaustive {
            write!(f, " exhaustive=1")?;
        }
        mutant.map_or(Ok(()), |mutant| write!(f, " mutant={}", mutant.name()))
    }
}

impl FromStr for Options {
    type Err = OptionsError;

    fn from_str(line: &str) -> Result<Self, OptionsError> {
        let mut options = Options::random(0, 0); // every option is replaced below
        let mut missing = NAMES.to_vec();
        for word in line.split_whitespace() {
            let unknown = || OptionsError::Unknown(word.to_owned());
            let (name, value) = word.split_once('=').ok_or_else(unknown)?;
            let number = || value.parse::<u64>().map_err(|_| OptionsError::Value(word.to_owned()));
            let small = || number().map(|number| usize::try_from(number).unwrap_or(usize::MAX));
            missing.retain(|other| *other != name);
            match name {
                "seed" => options.seed = number()?,
                "stages" => options.stages = small()?,
                "f" => options.f = small()?,
                "partitions" => options.partitions = small()?,
                "unit" => options.unit = small()?,
                "mtu" => options.mtu = small()?,
                "snapshot" => options.snapshot = small()?,
                "age" => options.age = number()?,
                "conflicts" => options.conflicts = small()?.min(90),
                "lanes" => options.lanes = small()?,
                "steps" => options.steps = small()?,
                "exhaustive" => options.exhaustive = number()? != 0,
                "mutant" => options.mutant = Some(value.parse().map_err(OptionsError::Mutant)?),
                _ => return Err(unknown()),
            }
        }
        missing.first().map_or(Ok(options), |name| Err(OptionsError::Missing(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_they_are_written() {
        // Goal: a printed run can be run again. Method: random options and a mutant, through their line.
        for seed in 0..200 {
            let mut options = Options::random(seed, 10);
            options.mutant = (seed % 2 == 0).then_some(Mutant::NoFence);
            options.exhaustive = seed % 3 == 0;
            let line = options.to_string();
            assert_eq!(line.parse(), Ok(options));
            let without: Vec<&str> = line.split(' ').skip(1).collect();
            assert_eq!(without.join(" ").parse::<Options>(), Err(OptionsError::Missing("seed")));
        }
        for wrong in ["stages", "stages=x", "colour=1", "mutant=kind"] {
            assert!(wrong.parse::<Options>().is_err(), "{wrong}");
        }
    }
}
