// A server of another origin, for pages that mean harm.

import { once } from 'node:events';
import { createServer } from 'node:http';

/** Serves `pages` by their paths. `site` is the same machine by another name, so another site. */
export async function neighbour(pages) {
  const server = createServer((request, response) => {
    const page = pages[request.url];
    response.writeHead(page === undefined ? 404 : 200, { 'content-type': 'text/html; charset=utf-8' });
    response.end(page ?? '');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  return {
    url: `http://127.0.0.1:${port}`,
    site: `http://localhost:${port}`,
    async stop() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
