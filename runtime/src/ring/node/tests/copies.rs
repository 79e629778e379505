//! Parts of an answer, whatever becomes of them on their way: lost, doubled, late, damaged, and in any order.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::dependency::Vector;
use crate::ring::control;
use crate::ring::node::recover::Life;
use crate::state::{Change, NEVER};
use crate::txn::delta;

/// Node 1 of three is replaced: it has stage 0 from node 0, and stage 1 from node 2.
const PLACE: usize = 1;
const SOURCES: [(usize, usize); 2] = [(0, 0), (2, 1)];

/// What a test frame asks for, besides what [`counter`] knows: that its count be forgotten.
const FORGET: u8 = 3;

/// A key that no frame has.
const FOREIGN: u8 = 255;

/// A snapshot's view, attempt and number, and whether it is the last.
const FRONT: usize = 8 + 8 + 4 + 1;

fn forgetful() -> Arc<dyn AnyNf> {
    Arc::new(nf(|frame, state: &Counts, txn| {
        let (key, ask) = (frame.bytes()[0], frame.bytes()[1]);
        match ask {
            FORGET => drop(txn.delete(&state.counts, &key)?),
            _ => drop(txn.update(&state.counts, key, |count| count.unwrap_or(0) + 1)?),
        }
        Ok(Verdict::Forward)
    }))
}

/// Keys, each with what is asked for.
type Asks = Vec<(u8, u8)>;

fn asks(most: usize) -> impl Strategy<Value = Asks> {
    prop::collection::vec((0u8..24, prop_oneof![4 => Just(WRITE), 1 => Just(FORGET)]), 0..most)
}

/// What becomes of a part.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// It comes as it was sent.
    Sound,
    /// A bit is flipped.
    Flipped(Index),
    /// Behind a good checksum, it has rows that nobody sent and then makes no sense.
    Senseless,
    /// The same, with a number of its own behind all others.
    Beyond(u32),
    /// It says that it is the last.
    TooSoon,
    /// It answers another attempt, or a question of another view.
    Late { attempt: bool, later: bool },
}

fn way() -> impl Strategy<Value = Way> {
    prop_oneof![
        16 => Just(Way::Sound),
        2 => any::<Index>().prop_map(Way::Flipped),
        1 => Just(Way::Senseless),
        1 => (0u32..3).prop_map(Way::Beyond),
        1 => Just(Way::TooSoon),
        2 => any::<[bool; 2]>().prop_map(|[attempt, later]| Way::Late { attempt, later }),
    ]
}

/// A source's whole answer, and what the source had when it made the last part.
struct Answer {
    source: usize,
    stage: usize,
    parts: Vec<Packet>,
    rows: Vec<(u8, u64)>,
    versions: Vector,
}

fn stored(node: &Node, stage: usize) -> (Vec<(u8, u64)>, Vector) {
    let store = node.store(stage).expect("a source has its stores");
    (store.state.downcast::<Counts>().expect("of the function").counts.rows(), store.versions())
}

/// A ring of three that has done what `history` asks for, and whose node 1 has just been replaced; with the questions.
fn replaced(snapshot_bytes: usize, history: &Asks) -> (Ring, Orchestrator, Vec<(usize, Packet)>) {
    let mut plan = plan(3, 1);
    plan.limits.snapshot_bytes = snapshot_bytes;
    let nfs: Arc<[Arc<dyn AnyNf>]> = (0..3).map(|_| forgetful()).collect();
    let mut orchestrator = Orchestrator::new(&plan);
    let mut ring = Ring::new(plan);
    ring.nodes =
        (0..3).map(|at| Node::new(at, plan, Arc::clone(&nfs), orchestrator.view().clone())).collect();
    for &(key, ask) in history {
        ring.accept(0, vec![frame(key, ask, 0, 60)]);
    }
    ring.settle();
    orchestrator.declare_dead(PLACE);
    orchestrator.admit();
    let view = orchestrator.view().clone();
    ring.nodes[PLACE] = Node::replacement(PLACE, plan, nfs, view.clone(), ring.now, &mut ring.out);
    SOURCES.iter().for_each(|&(source, _)| ring.nodes[source].adopt(&view, &mut ring.out));
    let mut questions: Vec<_> = ring.out.control.drain(..).collect();
    questions.sort_by_key(|(source, _)| *source); // as in `SOURCES`
    (ring, orchestrator, questions)
}

/// The answer to a question; meanwhile the source does what `meanwhile` asks for, a frame between any two parts.
fn answer(ring: &mut Ring, (source, question): (usize, Packet), meanwhile: &Asks) -> Answer {
    let (_, stage) = *SOURCES.iter().find(|(node, _)| *node == source).expect("it is asked");
    ring.accept(source, vec![question]);
    // Only the first node has its stage's packets from outside.
    let mut frames = meanwhile.iter().filter(|_| source == 0);
    while ring.nodes[source].control.copy.is_some() {
        let burst = frames.next().map(|&(key, ask)| frame(key, ask, 0, 60));
        ring.accept(source, burst.into_iter().collect());
    }
    let parts = ring.out.control.drain(..).map(|(_, part)| part).collect();
    let (rows, versions) = stored(&ring.nodes[source], stage);
    Answer { source, stage, parts, rows, versions }
}

/// What should have come of a source's answer.
#[derive(Default)]
struct Model {
    taken: BTreeSet<u32>,
    /// The last part's number, and whether it makes sense.
    last: Option<(u32, bool)>,
    is_complete: bool,
}

impl Model {
    /// Takes a part that answers the question. Says whether it is refused.
    fn take(&mut self, number: u32, is_last: bool, makes_sense: bool) -> bool {
        let doubled = self.last.is_some_and(|(last, _)| last == number || is_last);
        if self.is_complete || doubled || self.taken.contains(&number) {
            return true;
        }
        match is_last {
            true => self.last = Some((number, makes_sense)),
            false => drop(self.taken.insert(number)),
        }
        let is_whole = self.last.is_some_and(|(last, _)| self.taken.len() == last as usize);
        let is_beyond = self.last.is_some_and(|(last, _)| self.taken.range(last..).next().is_some());
        let last_is_senseless = is_whole && self.last.is_some_and(|(_, makes_sense)| !makes_sense);
        if (!is_last && !makes_sense) || is_beyond || last_is_senseless {
            *self = Model::default();
            return true;
        }
        self.is_complete = is_whole;
        false
    }
}

/// A part of an answer on its `way`, and whether the replacement should refuse it.
fn on_its_way(answer: &Answer, at: usize, way: Way, model: &mut Model) -> (Packet, bool) {
    let sent = &answer.parts[at];
    let (mut body, last) = (sent.frame()[control::HEADER..].to_vec(), answer.parts.len() - 1);
    let sealed = |body: &[u8]| {
        let mut packet = Packet::default();
        control::seal(&mut packet, Kind::Snapshot, body);
        packet.meta = sent.meta;
        packet
    };
    match way {
        Way::Sound => (sent.clone(), model.take(at as u32, at == last, true)),
        Way::Flipped(bit) => {
            let (mut flipped, bit) = (sent.clone(), bit.index(sent.frame().len() * 8));
            flipped.frame_mut()[bit / 8] ^= 1 << (bit % 8);
            (flipped, true)
        }
        Way::Senseless | Way::Beyond(_) => {
            let (mut rows, value) = (Vec::new(), 7u64.to_le_bytes());
            let change = Change { table: 0, key: &[FOREIGN], value: Some(&value), expires: NEVER };
            delta::put_change(&mut rows, &change);
            let mut forged = vec![answer.stage as u8];
            forged.extend((rows.len() as u64).to_le_bytes());
            forged.extend(rows);
            let Way::Beyond(further) = way else {
                forged.extend([answer.stage as u8, 1, 0, 0, 0, 0, 0, 0, 0, 3]); // a form that nobody knows
                body.splice(FRONT..FRONT, forged);
                return (sealed(&body), model.take(at as u32, at == last, false));
            };
            let number = last as u32 + 1 + further;
            body.truncate(FRONT);
            body[16..20].copy_from_slice(&number.to_le_bytes());
            body[20] = 0;
            body.extend(forged);
            body.push(u8::MAX);
            (sealed(&body), model.take(number, false, true))
        }
        Way::TooSoon => {
            body[20] = 1;
            (sealed(&body), model.take(at as u32, true, at == last))
        }
        Way::Late { attempt, later } => {
            let place = if attempt { 8..16 } else { 0..8 };
            let number = u64::from_le_bytes(body[place.clone()].try_into().expect("eight bytes"));
            let other = if later { number + 1 } else { number - 1 };
            body[place].copy_from_slice(&other.to_le_bytes());
            (sealed(&body), true)
        }
    }
}

/// That the replacement has what each source had, or nothing.
fn look(node: &Node, answers: &[Answer], models: &[Model; 2]) {
    let is_up = models.iter().all(|model| model.is_complete);
    assert_eq!(node.is_up(), is_up);
    for (answer, model) in answers.iter().zip(models) {
        let store = match &node.control.life {
            Life::Joining(joining) => {
                assert!(node.store(answer.stage).is_none(), "nobody sees it yet");
                joining.stores[answer.stage].as_ref()
            }
            _ => node.store(answer.stage),
        };
        assert_eq!(store.is_some(), model.is_complete, "stage {}", answer.stage);
        let Some(store) = store else { continue };
        let state = store.state.downcast::<Counts>().expect("of the function");
        assert_eq!((state.counts.rows(), store.versions()), (answer.rows.clone(), answer.versions));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_replacement_has_what_its_sources_had_or_nothing(
        snapshot_bytes in prop::sample::select(vec![1usize, 60, 1 << 20]),
        history in asks(40),
        meanwhile in [asks(20), asks(20)],
        ways in prop::collection::vec((0usize..2, any::<Index>(), way()), 0..60),
        new_view: bool,
    ) {
        // Goal: whatever comes of two answers and in whichever order, each is taken as its source was when it made the last part,
        // or not at all, and what is refused leaves nothing behind. Method: random deliveries of parts from sources that go on
        // working, beside a model of sets; then all is asked again, in a new view or as time passes, and comes from the end, with
        // old parts in between.
        let (mut ring, orchestrator, questions) = replaced(snapshot_bytes, &history);
        let ask = |ring: &mut Ring, questions: Vec<(usize, Packet)>, meanwhile: &Asks| -> Vec<Answer> {
            questions.into_iter().map(|question| answer(ring, question, meanwhile)).collect()
        };
        let mut answers = ask(&mut ring, questions, &meanwhile[0]);
        let (mut models, mut refused) = (<[Model; 2]>::default(), 0);
        for (which, at, way) in ways {
            let answer = &answers[which];
            let (part, is_refused) = on_its_way(answer, at.index(answer.parts.len()), way, &mut models[which]);
            refused += u64::from(is_refused);
            ring.accept(PLACE, vec![part]);
            prop_assert_eq!(ring.nodes[PLACE].stats().refused.total(), refused);
            look(&ring.nodes[PLACE], &answers, &models);
        }
        if new_view && !ring.nodes[PLACE].is_up() {
            let mut view = orchestrator.view().clone();
            view.number += 1;
            for index in 0..3 {
                ring.nodes[index].adopt(&view, &mut ring.out);
                ring.route(index);
            }
            models = <[Model; 2]>::default();
        } else {
            ring.now.timer += 1_000_000_000;
            ring.nodes[PLACE].tick(ring.now, &mut ring.out);
            ring.route(PLACE);
        }
        let questions: Vec<_> = ring.out.control.drain(..).collect();
        prop_assert_eq!(questions.len(), models.iter().filter(|model| !model.is_complete).count());
        let late: Vec<Packet> = answers.iter().flat_map(|answer| answer.parts.iter().cloned()).collect();
        for again in ask(&mut ring, questions, &meanwhile[1]) {
            let which = SOURCES.iter().position(|(source, _)| *source == again.source).expect("it is asked");
            for (at, part) in again.parts.iter().enumerate().rev() {
                ring.accept(PLACE, vec![late[at % late.len()].clone(), part.clone()]);
            }
            answers[which] = again;
            models[which].is_complete = true;
            look(&ring.nodes[PLACE], &answers, &models);
        }
        prop_assert!(ring.nodes[PLACE].is_up());
        ring.network.clear();
        ring.settle();
        ring.assert_equal_replicas();
    }
}

#[test]
fn what_is_half_taken_ends_with_a_node_that_is_declared_dead() {
    // Goal: a replacement that is dead itself takes nothing more, and has nothing. Method: all parts but one; then the view.
    let history: Asks = (0..24).map(|key| (key, WRITE)).collect();
    let (mut ring, mut orchestrator, questions) = replaced(1, &history);
    let mut parts: Vec<Packet> = Vec::new();
    for question in questions {
        parts.extend(answer(&mut ring, question, &Asks::new()).parts);
    }
    let first = parts.remove(0);
    ring.accept(PLACE, parts);
    assert_eq!((ring.nodes[PLACE].stats().refused.total(), ring.nodes[PLACE].is_up()), (0, false));
    orchestrator.declare_dead(PLACE);
    ring.nodes[PLACE].adopt(orchestrator.view(), &mut ring.out);
    ring.accept(PLACE, vec![first]);
    assert_eq!(refused(&ring.nodes[PLACE], "unexpected_snapshot"), 1);
    assert!(matches!(ring.nodes[PLACE].control.life, Life::Retired));
    assert!((0..3).all(|stage| ring.nodes[PLACE].store(stage).is_none()));
}

#[test]
fn a_source_that_needs_long_for_a_part_is_waited_for() {
    // Goal: a replacement comes up however long its sources need. Method: sources that have a turn every fifty milliseconds, three
    // times what is waited for an answer at first, and a replacement that has one in each.
    let history: Asks = (0..24).map(|key| (key, WRITE)).collect();
    let (mut ring, _, mut under_way) = replaced(1, &history);
    for millisecond in 1..5_000 {
        ring.now.timer += 1_000_000;
        for index in 0..3 {
            if index == PLACE || millisecond % 50 == 0 {
                let burst = under_way.extract_if(.., |(to, _)| *to == index).map(|(_, packet)| packet);
                let burst = burst.collect();
                ring.accept(index, burst);
                ring.nodes[index].tick(ring.now, &mut ring.out);
                ring.route(index);
            }
        }
        under_way.append(&mut ring.out.control);
        if ring.nodes[PLACE].is_up() {
            return;
        }
    }
    panic!("it still asks: {:?}", ring.nodes[PLACE]);
}

#[cfg(feature = "simulation")]
#[test]
fn nodes_that_have_taken_something_else_are_told_apart() {
    // Goal: whoever explores does not leave out what differs in nothing but a store that is complete, or rows that are
    // not. Method: two replacements that have got the same parts of the same numbers, with other rows.
    use std::hash::{DefaultHasher, Hasher};
    let hashes = |count: usize| -> Vec<u64> {
        let history: Asks = [vec![(1, WRITE); count], vec![(2, WRITE); 4 - count]].concat();
        let (mut ring, _, questions) = replaced(1, &history);
        let fingerprint = |ring: &Ring| {
            let mut hasher = DefaultHasher::new();
            ring.nodes[PLACE].hash_into(&mut hasher);
            hasher.finish()
        };
        let mut hashes = vec![fingerprint(&ring)];
        for question in questions.into_iter().rev() {
            for part in answer(&mut ring, question, &Asks::new()).parts {
                ring.accept(PLACE, vec![part]);
                hashes.push(fingerprint(&ring));
            }
        }
        hashes
    };
    let (one, two) = (hashes(1), hashes(2));
    assert_eq!((one.len(), one[0]), (two.len(), two[0]));
    assert!(one.len() > 4);
    assert!(one.iter().zip(&two).skip(1).all(|(one, two)| one != two), "{one:?} {two:?}");
}
