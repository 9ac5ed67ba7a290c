// Very many topics and messages, made over the public interface.

const BATCH = 1000;
const TOPICS_AT_ONCE = 100;

/** Runs `make` for 0 to `count`, some at a time. */
async function many(count, atOnce, make) {
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const number = next;
      next += 1;
      await make(number);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

/**
 * Topics `topic-00000` and so on, each with a message that is pending. They come into being by the first
 * message, and the messages of a transaction are stored together: one flush makes many topics.
 */
export async function topics(api, count) {
  const name = (number) => `topic-${String(number).padStart(5, '0')}`;
  await many(Math.ceil(count / TOPICS_AT_ONCE), 1, async (batch) => {
    const size = Math.min(TOPICS_AT_ONCE, count - batch * TOPICS_AT_ONCE);
    const messages = Array.from({ length: size }, (_, index) => ({
      topic: name(batch * TOPICS_AT_ONCE + index),
      body: 'the first',
      delay: '7d',
    }));
    const { id } = await api.post('/v1/transactions', { producer_group: 'crowd', messages });
    await api.post(`/v1/transactions/${id}/commit`);
  });
}

/** Messages that are due over the next thirty days, with keys `user-N/…`. */
export function messages(api, topic, count) {
  const begin = Date.now() + 3_600_000;
  const step = (30 * 86_400_000) / count;
  return many(Math.ceil(count / BATCH), 4, (batch) => {
    const size = Math.min(BATCH, count - batch * BATCH);
    const content = Array.from({ length: size }, (_, index) => {
      const number = batch * BATCH + index;
      return {
        key: `user-${number % 1000}/${number}`,
        body: `reminder ${number}`,
        deliver_at: Math.round(begin + number * step),
      };
    });
    return api.post(`/v1/topics/${topic}/messages`, { messages: content });
  });
}
