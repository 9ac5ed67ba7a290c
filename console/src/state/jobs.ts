// Follows a job of the server until it ends or nobody looks any more.

const POLL_MS = 700

export async function followed<T extends { state: string }>(
  read: () => Promise<T>,
  seen: (job: T) => void,
  wanted: () => boolean,
): Promise<void> {
  while (wanted()) {
    const job = await read()
    seen(job)
    if (job.state !== 'running') return
    await new Promise((resolve) => setTimeout(resolve, POLL_MS))
  }
}
