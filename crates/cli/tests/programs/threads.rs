//! Threads that wait in all ways of the Rust library, below closures, generics, trait objects and
//! `catch_unwind`. One is in a `Drop` that a panic runs, one in a panic hook.

use std::cell::Cell;
use std::hint::black_box;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Barrier, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

unsafe extern "C" {
    fn prctl(option: i32, value: u64) -> i32;
}

const PR_SET_PTRACER: i32 = 0x59616d61;

trait Wait {
    fn wait(&self, depth: u64) -> u64;
}

struct OnChannel(mpsc::Receiver<u64>);

impl Wait for OnChannel {
    #[inline(never)]
    fn wait(&self, depth: u64) -> u64 {
        self.0.recv().map_or(depth, |got| got + depth)
    }
}

struct OnCondvar(Mutex<bool>, Condvar);

impl Wait for OnCondvar {
    #[inline(never)]
    fn wait(&self, depth: u64) -> u64 {
        let mut done = self.0.lock().unwrap();
        while !*done {
            done = self.1.wait(done).unwrap();
        }
        depth
    }
}

/// A tree of calls that the compiler cannot turn into a loop.
#[inline(never)]
fn descend<W: Wait + ?Sized>(waiter: &W, depth: u64) -> u64 {
    let below = if depth == 0 {
        waiter.wait(depth)
    } else {
        descend(waiter, depth - 1)
    };
    black_box(below) + black_box(depth)
}

#[inline(never)]
fn through_closures(values: &[u64], all: &Barrier) -> u64 {
    let parked = |value: &u64| -> u64 {
        all.wait();
        while black_box(true) {
            thread::park();
        }
        *value
    };
    black_box(values.iter().map(parked).sum())
}

struct Parks<'a>(&'a Barrier);

impl Drop for Parks<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        self.0.wait();
        loop {
            thread::sleep(Duration::from_secs(100_000));
        }
    }
}

#[inline(never)]
fn panics(all: &Barrier) {
    let _parks = Parks(all);
    if black_box(true) {
        panic!("unwinds into drop");
    }
}

thread_local! {
    static STAY_IN_HOOK: Cell<bool> = const { Cell::new(false) };
}

fn main() {
    let all = Arc::new(Barrier::new(6));
    let in_hook = Arc::clone(&all);
    panic::set_hook(Box::new(move |_| {
        if STAY_IN_HOOK.get() {
            in_hook.wait();
            loop {
                thread::park();
            }
        }
    }));
    let (sender, receiver) = mpsc::channel();
    let spawn = |name: &str, run: Box<dyn FnOnce(&Barrier) -> u64 + Send>| {
        let all = Arc::clone(&all);
        thread::Builder::new().name(name.into()).spawn(move || run(&all)).unwrap()
    };
    let threads = [
        spawn("channel", Box::new(move |all| {
            all.wait();
            descend(&OnChannel(receiver), 20)
        })),
        spawn("condvar", Box::new(|all| {
            all.wait();
            let waiter: Box<dyn Wait> = Box::new(OnCondvar(Mutex::new(false), Condvar::new()));
            descend(&*waiter, 3)
        })),
        spawn("park", Box::new(|all| through_closures(&[1, 2, 3], all))),
        spawn("drop", Box::new(|all| {
            panic::catch_unwind(AssertUnwindSafe(|| panics(all))).map_or(1, |()| 2)
        })),
        spawn("hook", Box::new(|_| {
            STAY_IN_HOOK.set(true);
            panic!("stays in the hook");
        })),
    ];
    all.wait();
    unsafe { prctl(PR_SET_PTRACER, u64::MAX) };
    println!("ready");
    for thread in threads {
        let _ = black_box(thread.join());
    }
    drop(sender);
}
