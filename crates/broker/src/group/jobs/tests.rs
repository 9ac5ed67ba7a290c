//! Jobs remember a bounded number of results, and each of them ends.

use punctual_model::{Key, Partition, Sequence, TopicId};

use super::*;

const GROUP: GroupId = GroupId(1);

fn moved(number: u64, result: MoveResult) -> Moved {
    let key = Key { due: Timestamp::MIN, sequence: Sequence::new(number).unwrap() };
    let (topic, partition) = (TopicId::new(1).unwrap(), Partition::new(0).unwrap());
    Moved { id: MessageId { key, topic, partition }, result, due: None }
}

fn run(jobs: &Jobs, group: GroupId, results: u64) -> JobId {
    let kind = (group, JobKind::Redrive);
    let work = move |worker: &Worker| {
        worker.note((0..results).map(|number| moved(number, MoveResult::Redriven)));
        Ok(())
    };
    let id = jobs.start(kind, Timestamp::MIN, work).unwrap();
    wait_for_end(jobs, group, id);
    id
}

#[expect(clippy::disallowed_methods, reason = "how long a test takes is real time")]
fn wait_for_end(jobs: &Jobs, group: GroupId, id: JobId) {
    let start = std::time::Instant::now();
    while jobs.report(group, id, 0, 0).unwrap().state == JobState::Running {
        assert!(start.elapsed() < Duration::from_secs(60), "the job never ends");
        std::thread::yield_now();
    }
}

#[test]
fn a_job_remembers_its_first_results_and_counts_all() {
    let jobs = Jobs::default();
    let count = RESULTS_PER_JOB_MAX as u64 + 5;
    let id = run(&jobs, GROUP, count);
    let report = jobs.report(GROUP, id, 0, usize::MAX).unwrap();
    assert_eq!((report.matched, report.done, report.cut), (count, count, true));
    assert_eq!((report.results.len(), report.next), (RESULTS_PER_JOB_MAX, None));
    let page = jobs.report(GROUP, id, RESULTS_PER_JOB_MAX - 1, 10).unwrap();
    assert_eq!((page.results.len(), page.next), (1, None));
}

#[test]
fn all_jobs_together_remember_a_bounded_number_of_results() {
    let jobs = Jobs::default();
    let each = RESULTS_PER_JOB_MAX;
    let fit = RESULTS_MAX / each;
    let groups = (1..).map(GroupId).take(fit + 2);
    let ids: Vec<_> = groups.map(|group| (group, run(&jobs, group, each as u64))).collect();
    // Trimming follows the end of a job, which another start waits for.
    jobs.stop();
    let kept = ids.iter().map(|(group, id)| {
        let report = jobs.report(*group, *id, 0, usize::MAX).unwrap();
        assert_eq!((report.done, report.cut), (each as u64, report.results.is_empty()));
        report.results.len()
    });
    let kept: Vec<usize> = kept.collect();
    assert_eq!(kept.iter().sum::<usize>(), RESULTS_MAX);
    assert!(kept.is_sorted(), "the oldest lose theirs first: {kept:?}");
}

#[test]
fn a_job_that_panics_has_failed() {
    let jobs = Jobs::default();
    let work = |_: &Worker| panic!("told to panic");
    let id = jobs.start((GROUP, JobKind::Drain), Timestamp::MIN, work).unwrap();
    jobs.stop();
    let state = jobs.report(GROUP, id, 0, 0).unwrap().state;
    assert_eq!(state, JobState::Failed("the job broke off".into()));
}

#[test]
fn a_busy_store_is_asked_again() {
    let jobs = Jobs::default();
    let work = |worker: &Worker| {
        let mut asked = 0;
        let answer = worker.step(|| {
            asked += 1;
            if asked < 3 { Err(GroupError::Store(StoreError::Busy)) } else { Ok(asked) }
        })?;
        worker.note((0..answer).map(|number| moved(number, MoveResult::Gone)));
        Ok(())
    };
    let id = jobs.start((GROUP, JobKind::Redrive), Timestamp::MIN, work).unwrap();
    wait_for_end(&jobs, GROUP, id);
    let report = jobs.report(GROUP, id, 0, 9).unwrap();
    assert_eq!((report.state, report.matched, report.done), (JobState::Done, 3, 0));
}

#[test]
fn a_lock_that_is_held_is_always_the_same() {
    let jobs = Jobs::default();
    let held = jobs.deciding(GROUP);
    for number in 2..5000 {
        drop(jobs.deciding(GroupId(number)));
    }
    assert!(Arc::ptr_eq(&held, &jobs.deciding(GROUP)));
    assert!(jobs.desk.state.lock().deciding.len() <= 2 * DECIDING_MIN);
}
