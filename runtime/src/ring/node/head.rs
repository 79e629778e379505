//! The head: runs the network function as a transaction, commits, and lets the unit ride.

use super::Output;
use super::lane::Lane;
use crate::dependency::Versions;
#[cfg(feature = "simulation")]
use crate::entropy::Entropy;
use crate::mutant::{self, Mutant};
use crate::nf::{Frame, Original, Verdict};
use crate::packet::{Direction, Kind, Packet, Pool};
use crate::piggyback::{UnitBuilder, UnitView};
use crate::ring::recorder::Origin;
use crate::state::Held;
use crate::txn::{Beginning, Txn, TxnResult, Workspace};

/// The unit that is open: transactions that will be committed together, and the frames that wait for it.
#[derive(Clone, Debug)]
pub(super) struct Open {
    /// Records that came with the frames, and at the commit the head's own.
    unit: UnitBuilder,
    work: Workspace,
    /// The frame of the running transaction before its edits.
    original: Original,
    transactions: usize,
    frames: Vec<Packet>,
    /// The network function is at a frame.
    at_frame: bool,
    /// The unit's name, while it is sent.
    name: Vec<u8>,
    /// A unit whose records are in the open one, and which wrote nothing that was not here: the last that came. The
    /// frames of a burst come one behind the other with the same name.
    joined: Vec<u8>,
}

impl Open {
    pub(super) fn new(work: Workspace) -> Self {
        Open {
            unit: UnitBuilder::default(),
            work,
            original: Original::default(),
            transactions: 0,
            frames: Vec::new(),
            at_frame: false,
            name: Vec::new(),
            joined: Vec::new(),
        }
    }

    /// Frames that wait for the open unit, and the one that the network function is at; none between turns.
    pub(super) fn frames(&self) -> usize {
        self.frames.len() + usize::from(self.at_frame)
    }

    /// What the open unit holds of the head's store.
    pub(super) fn held(&self) -> &Held {
        &self.work.held
    }

    /// Goes on with what is held of another store, or in another way. Nothing may be open.
    pub(super) fn set_held(&mut self, held: Held) {
        self.work.held = held;
    }

    /// The node is dead.
    pub(super) fn lose_frames(&mut self) {
        self.frames.clear();
        self.at_frame = false;
    }

    /// See [`Lane::release_claims`].
    pub(super) fn release_claims(&mut self) {
        self.work.held.release();
    }

    #[cfg(feature = "simulation")]
    pub(super) fn provoke_conflicts(&mut self, entropy: Entropy, chance: f64) {
        self.work.conflicts = Some((entropy, chance));
    }
}

impl Lane {
    /// Whether a frame comes without a unit, or with the unit that the last one came with: it is here, and in the open unit.
    pub(super) fn has_joined(&self, packet: &Packet) -> bool {
        packet.meta.kind == Kind::Frame && (packet.unit().is_empty() || packet.unit() == self.open.joined)
    }

    /// A packet whose unit is applied here: the unit joins the open one, the frame passes the network function.
    pub(super) fn stage(&mut self, packet: Packet, news: bool, out: &mut Output) {
        let alone = packet.meta.kind == Kind::Unit;
        if alone && !news {
            return out.pool.give(packet); // what it did is here, and has been passed on
        }
        let bytes = if alone { packet.frame() } else { packet.unit() };
        let unit = UnitView::trusted(bytes);
        if !unit.is_empty() {
            if !self.carry_on(&unit) {
                self.close(out);
                // An empty unit takes any other in.
                let _ = self.carry_on(&unit);
            }
            self.open.joined.clear();
            if !news {
                self.open.joined.extend_from_slice(bytes);
            }
        }
        self.pass(packet, out);
    }

    /// A packet whose unit is in the open one: the frame passes the network function.
    pub(super) fn pass(&mut self, mut packet: Packet, out: &mut Output) {
        let alone = packet.meta.kind == Kind::Unit;
        if alone || !self.core.is_head() {
            return out.pool.give(packet);
        }
        packet.set_unit(&[]);
        self.transact(packet, out);
        let full = !self.open.work.has_room_for(self.core.largest);
        if full || self.open.transactions >= self.core.plan.unit_frames {
            self.close(out);
        }
    }

    /// Puts the records of a unit that has not reached its tail here into the open unit.
    fn carry_on(&mut self, unit: &UnitView<'_>) -> bool {
        let core = &self.core;
        self.open.unit.absorb(unit, |stage| {
            let store = core.store(usize::from(stage))?;
            (core.plan.tail(usize::from(stage)) != core.index).then_some(store.live_versions())
        })
    }

    /// Runs the network function on a frame. What it drops or aborts ends here; the open unit stays.
    fn transact(&mut self, mut packet: Packet, out: &mut Output) {
        self.advance(packet.meta.time);
        self.open.at_frame = true;
        let (beginning, verdict) = self.attempt(&mut packet, out);
        let open = &mut self.open;
        open.at_frame = false;
        open.transactions += 1;
        self.stats.processed += 1;
        open.work.emitted_since(&beginning).for_each(|emitted| emitted.meta.flow = packet.meta.flow);
        let reason = match verdict {
            Ok(Verdict::Forward) => {
                self.stats.forwarded += 1;
                open.work.keep();
                return open.frames.push(packet);
            }
            Ok(Verdict::Drop(reason)) => {
                open.work.keep();
                if mutant::is(Mutant::DropLosesUnit) {
                    open.unit.clear();
                }
                reason
            }
            Err(abort) => {
                open.work.abort(&beginning, &mut out.pool);
                abort.reason
            }
        };
        self.stats.drops.count(reason);
        out.pool.give(packet);
    }

    /// Runs the network function. Where it meets another lane's transaction, or finds no room in the open unit, it is undone,
    /// and what was open is closed: so the other can go on, and there is room. Then it runs again, from the frame's original
    /// bytes, and waits for what it claims.
    fn attempt(&mut self, packet: &mut Packet, out: &mut Output) -> (Beginning, TxnResult<Verdict>) {
        loop {
            let (core, open) = (&self.core, &mut self.open);
            let store = core.store(core.index).expect("a head that is up holds its stage's store");
            let beginning = open.work.begin();
            let mut frame = match open.work.may_conflict() {
                true => Frame::restorable(packet, &mut open.original),
                false => Frame::new(packet),
            };
            let mut txn = Txn::new(&mut open.work, &mut out.pool, self.time);
            let said = core.nfs[core.index].run(&mut frame, &*store.state, &mut txn);
            if !open.work.conflicted() {
                return (beginning, open.work.conclude(said));
            }
            open.work.abort(&beginning, &mut out.pool);
            open.original.restore(packet);
            self.give_way(out);
        }
    }

    /// After a conflict, or where the open unit has no room left: closes what is open, and waits in line. The transaction that
    /// runs again is of another unit then, which names the one that was closed: the packet's own records may be in it.
    fn give_way(&mut self, out: &mut Output) {
        self.stats.conflicts += 1;
        self.close(out);
        let name = std::mem::take(&mut self.open.name);
        let named = mutant::is(Mutant::NamelessRetry) || self.carry_on(&UnitView::trusted(&name));
        debug_assert!(named, "an empty unit takes any other in");
        self.open.name = name;
        self.open.work.insist();
    }

    /// Removes idle rows of one partition: a transaction whose unit travels without a packet.
    pub(super) fn sweep(&mut self, out: &mut Output) {
        if self.number != 0 || !self.core.is_head() || self.time < self.next_sweep {
            return;
        }
        self.next_sweep = self.time.saturating_add(self.core.plan.limits.sweep_every);
        self.sweep_at = (self.sweep_at + 1) % self.core.plan.layout.partitions;
        loop {
            let (core, work) = (&self.core, &mut self.open.work);
            let store = core.store(core.index).expect("a head that is up holds its stage's store");
            let beginning = work.begin();
            let mut txn = Txn::new(work, &mut out.pool, self.time);
            let swept = core.nfs[core.index].run_sweep(&*store.state, &mut txn, self.sweep_at);
            let conflicted = work.conflicted();
            match work.conclude(swept) {
                Ok(()) => work.keep(),
                Err(_) => work.abort(&beginning, &mut out.pool),
            }
            if !conflicted {
                break;
            }
            self.give_way(out);
        }
        self.open.transactions += 1;
        if mutant::is(Mutant::LostTimer) {
            self.commit();
            self.open.unit.clear();
        }
        self.close(out);
    }

    /// Commits the open unit and sends everything that belongs to it on its way.
    pub(super) fn close(&mut self, out: &mut Output) {
        self.open.name.clear();
        if !mutant::is(Mutant::StaleName) {
            self.open.joined.clear();
        }
        if self.open.transactions > 0 {
            self.commit();
        }
        if self.open.unit.is_empty() && self.open.frames.is_empty() && self.open.work.emitted.is_empty() {
            return;
        }
        let core = &self.core;
        self.open.unit.forget_committed(|stage| Some(core.store(usize::from(stage))?.live_commit()));
        let writes = self.open.unit.writes();
        let unit = &self.open.unit;
        unit.encode_name(&mut self.open.name);
        if writes {
            let (name, now) = (&self.open.name, self.now.timer);
            self.retained.push_with(name, unit.bytes(), now, |bytes| unit.encode(bytes));
            self.stats.units_sent += 1;
        }
        self.send(writes, out);
        self.open.unit.clear();
    }

    /// The commit: the record takes the version of each partition touched, and is applied to the head's store by the
    /// very function that replicas use.
    fn commit(&mut self) {
        let (core, open) = (&self.core, &mut self.open);
        let (read, written) = (open.work.writes.read(), open.work.writes.written());
        if !read.union(written).is_empty() {
            let store = core.store(core.index).expect("a head that is up holds its stage's store");
            let record = open.unit.record(core.index as u8);
            let seen = if mutant::is(Mutant::ElidedReads) { written } else { read.union(written) };
            for partition in seen.iter() {
                let (version, writes) =
                    (store.live_versions().version(partition), written.contains(partition));
                // Nobody need wait for what was read and is everywhere.
                if writes || store.live_commit().version(partition) < version {
                    record.note(partition, version, writes);
                }
            }
            if !written.is_empty() {
                open.work.writes.encode(record.delta_mut());
                store.take(record.delta(), open.work.writes.sites(), written, &open.work.held);
                let by = Origin { node: core.index, incarnation: core.incarnation };
                self.recorder.committed(by, self.time, record);
            }
            if core.plan.f() == 0 {
                open.unit.clear(); // nobody replicates it
            }
        }
        open.work.clear();
        open.transactions = 0;
    }

    /// Sends the frames of the closed unit: the first that goes forward carries it, the others its name. What can't
    /// carry its name waits here until the unit is committed, and so does what goes backward or leaves the chain.
    fn send(&mut self, writes: bool, out: &mut Output) {
        self.hold.begin_unit();
        let mut frames = std::mem::take(&mut self.open.frames);
        if self.open.name.is_empty() && self.hold.is_empty() {
            self.depart(frames.drain(..), out); // there is nothing to carry, and nothing to wait for
        }
        let whole = if writes { self.retained.newest().len() } else { 0 };
        let mut carries = writes && frames.first().is_some_and(|frame| self.can_carry(frame, whole));
        if writes && !carries {
            self.send_alone(out);
        }
        if frames.iter().all(|packet| self.ends_here(packet)) {
            self.hold_all(&mut frames, out);
        }
        let address = self.address(self.core.plan.successor(self.core.index));
        for mut packet in frames.drain(..) {
            if carries || self.can_carry(&packet, self.open.name.len()) {
                let ride = match carries {
                    true => self.retained.newest(),
                    false if mutant::is(Mutant::NamelessBurst) => &[],
                    false => &self.open.name,
                };
                packet.set_unit(ride);
                self.stats.unit_bytes += ride.len() as u64;
                address.put_on(&mut packet);
                out.forward.push(packet);
            } else {
                self.hold(packet, out);
            }
            carries = false;
        }
        self.open.frames = frames;
        let mut emitted = std::mem::take(&mut self.open.work.emitted);
        for packet in emitted.drain(..) {
            self.stats.generated += 1;
            self.hold(packet, out);
        }
        self.open.work.emitted = emitted;
    }

    /// Whether a frame can't take anything along from here: it goes backward, or leaves the chain.
    fn ends_here(&self, packet: &Packet) -> bool {
        packet.meta.direction == Direction::Inbound || self.core.index == self.core.plan.last()
    }

    /// Whether a frame goes forward from here, at once, with `bytes` behind it.
    fn can_carry(&self, packet: &Packet, bytes: usize) -> bool {
        !self.ends_here(packet)
            && (bytes == 0 || packet.frame().len() + bytes <= self.core.plan.limits.mtu)
            && !self.hold.blocks(packet)
    }

    fn send_alone(&mut self, out: &mut Output) {
        let unit = self.retained.newest();
        self.stats.unit_bytes += unit.len() as u64;
        let mut packet = unit_alone(unit, &mut out.pool);
        self.address(self.core.plan.successor(self.core.index)).put_on(&mut packet);
        out.forward.push(packet);
    }

    /// Lets frames leave when the unit that was just closed is committed: at once where there is none.
    fn hold_all(&mut self, packets: &mut Vec<Packet>, out: &mut Output) {
        let breaks_rule = mutant::is(Mutant::NoReleaseWait) || mutant::is(Mutant::NoBackwardWait);
        if self.open.name.is_empty() || breaks_rule {
            packets.drain(..).for_each(|packet| self.hold(packet, out));
        } else {
            self.hold.push_all(packets, &self.open.name);
        }
    }

    /// As [`Lane::hold_all`], of one frame.
    fn hold(&mut self, packet: Packet, out: &mut Output) {
        let lets_go = match packet.meta.direction {
            Direction::Outbound => {
                mutant::is(Mutant::NoReleaseWait) && self.core.index == self.core.plan.last()
            }
            Direction::Inbound => mutant::is(Mutant::NoBackwardWait),
        };
        if (self.open.name.is_empty() || lets_go) && !self.hold.blocks(&packet) {
            self.depart([packet], out);
        } else {
            self.hold.push(packet, &self.open.name);
        }
    }
}

/// A message that is a unit and nothing else.
pub(super) fn unit_alone(unit: &[u8], pool: &mut Pool) -> Packet {
    let mut packet = pool.take();
    packet.set_frame(unit);
    packet.meta.kind = Kind::Unit;
    packet
}
