//! Shrinking in fewer steps and to smaller values than the parts of a strategy do by themselves.

use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::{Trace, TraceFrame};

/// Values of `strategy` that shrink to `plain` at once where that still fails, and else as they do by themselves: a
/// number that does not matter costs one try in place of one for each of its bits. `plain` must be one of its values.
pub(super) fn plain_first<S: Strategy>(plain: S::Value, strategy: S) -> PlainFirst<S> {
    PlainFirst { plain, strategy }
}

/// See [`plain_first`].
#[derive(Clone, Debug)]
pub(super) struct PlainFirst<S: Strategy> {
    plain: S::Value,
    strategy: S,
}

impl<S: Strategy<Value: Clone>> Strategy for PlainFirst<S> {
    type Tree = PlainFirstTree<S::Tree>;
    type Value = S::Value;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let inner = self.strategy.new_tree(runner)?;
        Ok(PlainFirstTree { inner, plain: self.plain.clone(), state: Plain::Untried })
    }
}

/// What is known about the plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plain {
    Untried,
    /// It is the current value.
    Tried,
    /// It is too plain.
    Refused,
}

/// A value that may become the plain one.
pub(super) struct PlainFirstTree<T: ValueTree> {
    inner: T,
    plain: T::Value,
    state: Plain,
}

impl<T: ValueTree<Value: Clone>> ValueTree for PlainFirstTree<T> {
    type Value = T::Value;

    fn current(&self) -> T::Value {
        if self.state == Plain::Tried { self.plain.clone() } else { self.inner.current() }
    }

    fn simplify(&mut self) -> bool {
        match self.state {
            Plain::Untried => {
                self.state = Plain::Tried;
                true
            }
            Plain::Tried => false,
            Plain::Refused => self.inner.simplify(),
        }
    }

    fn complicate(&mut self) -> bool {
        match self.state {
            Plain::Untried => false,
            Plain::Tried => {
                self.state = Plain::Refused;
                true
            }
            Plain::Refused => self.inner.complicate(),
        }
    }
}

/// Traces of `inner`, which shrink as `inner` shrinks them and then lose frames.
#[derive(Clone, Debug)]
pub(super) struct Thin<S> {
    pub(super) inner: S,
    /// Whether frames may be lost at all.
    pub(super) may_lose: bool,
}

impl<S: Strategy<Value = Trace>> Strategy for Thin<S> {
    type Tree = ThinTree<S::Tree>;
    type Value = Trace;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let inner = self.inner.new_tree(runner)?;
        Ok(ThinTree { inner, may_lose: self.may_lose, failed: Trace::default(), losing: None })
    }
}

/// A trace, and how it shrinks.
pub(super) struct ThinTree<T> {
    inner: T,
    may_lose: bool,
    /// The last trace of `inner` that was to be simplified.
    failed: Trace,
    /// Set when `inner` is done.
    losing: Option<Losing>,
}

impl<T: ValueTree<Value = Trace>> ThinTree<T> {
    fn start_losing(&mut self) -> bool {
        if !self.may_lose {
            return false;
        }
        let frames = std::mem::take(&mut self.failed).0;
        let chunk = frames.len().next_power_of_two();
        let losing = self.losing.insert(Losing { frames, chunk, at: 0, lost: Vec::new() });
        losing.lose()
    }
}

impl<T: ValueTree<Value = Trace>> ValueTree for ThinTree<T> {
    type Value = Trace;

    fn current(&self) -> Trace {
        self.losing.as_ref().map_or_else(|| self.inner.current(), |losing| Trace(losing.frames.clone()))
    }

    fn simplify(&mut self) -> bool {
        if let Some(losing) = &mut self.losing {
            losing.lost.clear();
            return losing.lose();
        }
        self.failed = self.inner.current();
        self.inner.simplify() || self.start_losing()
    }

    fn complicate(&mut self) -> bool {
        match &mut self.losing {
            Some(losing) => losing.give_back(),
            None => self.inner.complicate() || self.start_losing(),
        }
    }
}

/// Delta debugging: chunks of frames are left out, from all of them down to single ones.
struct Losing {
    frames: Vec<TraceFrame>,
    /// How many frames are left out together; 0 when all was tried.
    chunk: usize,
    /// Where the next chunk begins.
    at: usize,
    /// The chunk left out last, which lay at `at`.
    lost: Vec<TraceFrame>,
}

impl Losing {
    /// Leaves out the next chunk; false where each single frame was tried.
    fn lose(&mut self) -> bool {
        if self.at >= self.frames.len() {
            (self.chunk, self.at) = (self.chunk / 2, 0);
        }
        if self.chunk == 0 || self.frames.is_empty() {
            return false;
        }
        let end = self.frames.len().min(self.at + self.chunk);
        self.lost = self.frames.drain(self.at..end).collect();
        true
    }

    /// Puts back the chunk that was needed, and leaves out the next one instead.
    fn give_back(&mut self) -> bool {
        if self.lost.is_empty() {
            return false;
        }
        let count = self.lost.len();
        self.frames.splice(self.at..self.at, self.lost.drain(..));
        self.at += count;
        // The trace has changed even where nothing is left to try: to the one that is known to fail.
        self.lose();
        true
    }
}
