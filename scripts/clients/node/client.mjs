// The contract called by Dubbo's client for Node.js, over each of its transports.

import assert from "node:assert/strict";
import { createPromiseClient } from "@apachedubbo/dubbo";
import { createDubboTransport, createGrpcTransport } from "@apachedubbo/dubbo-node";
import { MessageService } from "./stubs/punctual/v1/punctual_dubbo.js";

const baseUrl = `http://${process.argv[2]}`;

async function check(name, transport) {
  const client = createPromiseClient(MessageService, transport);
  const body = new TextEncoder().encode(`from ${name}`);
  const delay = { seconds: 3600n, nanos: 0 };
  const messages = [{ body, when: { case: "delay", value: delay } }];
  for (let round = 0; round < 20; round += 1) {
    const sent = await client.send({ topic: "dubbo-node", messages });
    assert.equal(sent.messages.length, 1, `${name}: an answer with the id of the message`);
    const found = await client.get({ name: { id: sent.messages[0].id } });
    assert.deepEqual(Buffer.from(found.body), Buffer.from(body), name);
    assert.equal(found.topic, "dubbo-node", name);
  }
  const missing = client.get({ name: { id: "nothing" } });
  await assert.rejects(missing, (error) => {
    assert.match(error.message, /no such message/, name);
    return true;
  });
  const illegal = client.send({ topic: "a/b", messages });
  await assert.rejects(illegal, /name/, name);
  return name;
}

const done = [];
for (const httpVersion of ["1.1", "2"]) {
  for (const useBinaryFormat of [true, false]) {
    const name = `Triple over HTTP/${httpVersion} as ${useBinaryFormat ? "protobuf" : "JSON"}`;
    const transport = createDubboTransport({ baseUrl, httpVersion, useBinaryFormat });
    done.push(await check(name, transport));
  }
}
const grpc = createGrpcTransport({ baseUrl, httpVersion: "2" });
done.push(await check("gRPC", grpc));
console.log(`dubbo-node: all is well with ${done.join(", ")}`);
process.exit(0);
