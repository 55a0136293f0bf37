//! Random inputs of the fuzz target `host`, which sends them to either side of a conversation and lets a policy in C return
//! random lists: no panic, no hang, and memory in proportion to the bytes. A binary of its own, because it counts the
//! allocations of all threads.

#[path = "../../../../benches/guard/src/counting_allocator.rs"]
mod counting_allocator;
#[path = "../../../../tests/hostile/fuzz/src/host.rs"]
mod host;

use counting_allocator::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Memory that is independent of the input.
const UNCHARGED: u64 = 1 << 20;

/// A deterministic sequence of pseudo-random numbers (xorshift64).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 11
}

/// Bytes that are small numbers where messages have tags, counts and indices, and others now and then.
fn random_bytes(state: &mut u64, len: u64) -> Vec<u8> {
    let mut byte = || match next(state) {
        n if n % 8 == 0 => n.to_le_bytes()[1],
        n if n % 8 < 5 => 0,
        n => n.to_le_bytes()[1] & 7,
    };
    (0..len).map(|_| byte()).collect()
}

/// A message: its header, and a body of this tag.
fn message(state: &mut u64, tag: u8) -> Vec<u8> {
    let len = next(state) % 80;
    let mut body = vec![tag];
    body.extend(random_bytes(state, len));
    let mut message = u32::try_from(body.len()).unwrap().to_ne_bytes().to_vec();
    message.extend([0; 4]);
    message.extend(body);
    message
}

#[test]
fn random_conversations_end() {
    let state = &mut 0x9e37_79b9_7f4a_7c15;
    // policies that return lists, and calls of each kind
    for _ in 0..10_000 {
        let calls = next(state) % 31 + 1;
        let mut input = vec![u8::try_from(calls << 3 | 2).unwrap()];
        for _ in 0..calls {
            input.push(u8::try_from(next(state) % 6).unwrap());
        }
        let len = next(state) % 400;
        input.extend(random_bytes(state, len));
        host::converse(&input);
    }
    // replies after a valid first one, and requests; 4 replaces their headers by valid ones
    let ready = [&6u32.to_ne_bytes()[..], &[0; 4], &[0, 7, 0, 0, 0, 1]].concat();
    for _ in 0..10_000 {
        let mut input = vec![4];
        input.extend(&ready);
        for _ in 0..next(state) % 8 {
            let tag = [2, 2, 2, 1, 0, 9][usize::try_from(next(state) % 6).unwrap()];
            input.extend(message(state, tag));
        }
        host::converse(&input);
    }
    // the first request, of version 2 of the protocol, with empty texts and at most 255 entries
    let mut init = vec![41, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    init.resize(8 + 41, 0);
    init[8 + 33] = 255;
    for _ in 0..10_000 {
        let mut input = vec![5];
        input.extend(random_bytes(state, 32));
        if !next(state).is_multiple_of(4) {
            input.extend(&init);
        }
        for _ in 0..next(state) % 8 {
            let tag = u8::try_from(next(state) % 8).unwrap();
            input.extend(message(state, tag));
        }
        host::converse(&input);
    }
}
