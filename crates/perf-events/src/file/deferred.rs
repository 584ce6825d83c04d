//! Samples whose user call chain is in a later record (`PERF_RECORD_CALLCHAIN_DEFERRED`).
//!
//! Linux can find a user stack when its thread returns from the kernel, where it may read pages
//! that are not in memory. The sample's chain then ends with a cookie. A record of the same thread
//! with that cookie has the rest, for all samples since the thread entered the kernel.

use std::collections::HashMap;

use perf_event_open_sys::bindings as abi;

use super::FileRecord;
use crate::record::{CallChain, Record, RecordHeader, SampleId, SampleRecord, UserStackDump};

/// The most memory of samples that wait for their chains, in bytes. Others do not wait.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// The most memory of the threads' last chains, in bytes. If there are more, all are forgotten.
const MAX_LAST_BYTES: usize = 16 << 20;

/// A sample without its user call chain.
#[derive(Debug)]
struct WaitingSample {
    cookie: u64,
    event: usize,
    sample_id: SampleId,
    header: RecordHeader,
    bytes: Vec<u8>,
    chain: Vec<u8>,
    registers: Vec<u8>,
    stack: Vec<u8>,
    raw: Vec<u8>,
    /// The rest.
    sample: SampleRecord<'static>,
}

/// Joins samples with their deferred call chains.
#[derive(Debug, Default)]
pub(super) struct DeferredChains {
    /// By thread, in order of time.
    waiting: HashMap<u32, Vec<WaitingSample>>,
    waiting_bytes: usize,
    /// The last chain of each thread: records of one time may be in any order.
    last: HashMap<u32, (u64, Vec<u8>)>,
    /// The bytes of all chains that were the last of a thread since they were forgotten.
    last_bytes: usize,
}

impl DeferredChains {
    /// Passes a record on, or keeps it until its chain is known. Yields what `each` returns.
    pub(super) fn take<E>(
        &mut self,
        record: FileRecord<'_>,
        each: &mut impl FnMut(FileRecord<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let tid = record.sample_id.tid;
        match record.record {
            Record::Sample(sample) => {
                let Some(cookie) = sample.chain.deferred() else {
                    return each(record);
                };
                let waiting = WaitingSample::new(cookie, &record, &sample);
                let all_bytes = self.waiting_bytes + waiting.size();
                match self.last.get(&tid) {
                    Some((known, chain)) if *known == cookie => waiting.join(chain, each),
                    _ if all_bytes > MAX_WAITING_BYTES => each(record),
                    _ => {
                        self.waiting_bytes = all_bytes;
                        self.waiting.entry(tid).or_default().push(waiting);
                        Ok(())
                    }
                }
            }
            Record::DeferredChain { cookie, chain } => {
                let chain = chain.as_bytes();
                for sample in self.take_waiting(tid) {
                    // A thread has one chain at a time: the earlier ones were lost.
                    let is_its = sample.cookie == cookie;
                    sample.join(if is_its { chain } else { &[] }, each)?;
                }
                self.keep_last(tid, cookie, chain);
                Ok(())
            }
            Record::Exit(task) => {
                self.last.remove(&task.tid);
                for sample in self.take_waiting(task.tid) {
                    sample.join(&[], each)?;
                }
                each(record)
            }
            _ => each(record),
        }
    }

    /// Keeps the last chain of a thread. Records of one time are close together in a file, so all
    /// earlier chains can be forgotten.
    fn keep_last(&mut self, tid: u32, cookie: u64, chain: &[u8]) {
        let bytes = size_of::<(u32, u64, Vec<u8>)>() + chain.len();
        if self.last_bytes + bytes > MAX_LAST_BYTES {
            self.last = HashMap::new();
            self.last_bytes = 0;
        }
        self.last_bytes += bytes;
        self.last.insert(tid, (cookie, chain.to_vec()));
    }

    /// The samples of a thread.
    fn take_waiting(&mut self, tid: u32) -> Vec<WaitingSample> {
        let waiting = self.waiting.remove(&tid).unwrap_or_default();
        self.waiting_bytes -= waiting.iter().map(WaitingSample::size).sum::<usize>();
        waiting
    }

    /// Passes the samples on that have no chain.
    pub(super) fn finish<E>(
        self,
        each: &mut impl FnMut(FileRecord<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut waiting: Vec<_> = self.waiting.into_values().flatten().collect();
        waiting.sort_by_key(|sample| sample.sample_id.time);
        waiting
            .into_iter()
            .try_for_each(|sample| sample.join(&[], each))
    }
}

impl WaitingSample {
    fn new(cookie: u64, record: &FileRecord<'_>, sample: &SampleRecord<'_>) -> WaitingSample {
        WaitingSample {
            cookie,
            event: record.event,
            sample_id: record.sample_id,
            header: record.header,
            bytes: record.bytes.to_vec(),
            chain: sample.chain.as_bytes().to_vec(),
            registers: sample.user.words().to_vec(),
            stack: sample.stack.bytes.to_vec(),
            raw: sample.raw.to_vec(),
            sample: SampleRecord {
                mode: sample.mode,
                ip: sample.ip,
                period: sample.period,
                chain: CallChain::default(),
                user: sample.user.with_words(&[]),
                stack: UserStackDump {
                    bytes: &[],
                    requested_bytes: sample.stack.requested_bytes,
                },
                raw: &[],
            },
        }
    }

    /// The memory that it takes, in bytes.
    fn size(&self) -> usize {
        let parts = [
            &self.bytes,
            &self.chain,
            &self.registers,
            &self.stack,
            &self.raw,
        ];
        size_of::<WaitingSample>() + parts.map(Vec::len).iter().sum::<usize>()
    }

    /// Passes the sample on with the rest of its chain.
    fn join<E>(
        mut self,
        chain: &[u8],
        each: &mut impl FnMut(FileRecord<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if !chain.is_empty() {
            self.chain.extend(abi::PERF_CONTEXT_USER.to_le_bytes());
            self.chain.extend_from_slice(chain);
        }
        each(FileRecord {
            event: self.event,
            sample_id: self.sample_id,
            record: Record::Sample(SampleRecord {
                chain: CallChain::from_bytes(&self.chain),
                user: self.sample.user.with_words(&self.registers),
                stack: UserStackDump {
                    bytes: &self.stack,
                    requested_bytes: self.sample.stack.requested_bytes,
                },
                raw: &self.raw,
                ..self.sample
            }),
            header: self.header,
            bytes: &self.bytes,
        })
    }
}
