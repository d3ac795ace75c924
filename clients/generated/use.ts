/** Uses a generated client as an application does: it has to compile. */
import { createClient } from "./generated/client";
import { batch, take } from "./generated/sdk.gen";

const client = createClient({ baseUrl: "http://127.0.0.1:8080" });

export async function mayHaveACode(phone: string): Promise<boolean> {
  const { data, error } = await take({
    client,
    body: { policy: "sms-send", identifier: phone },
    headers: { "Idempotency-Key": "a-key" },
  });
  if (error !== undefined && "retry_after_ms" in error) {
    const wait: number | null = error.retry_after_ms;
    console.log(wait, error["violated-policies"]);
  }
  return data?.allowed ?? false;
}

export async function statuses(phone: string): Promise<number[]> {
  const { data } = await batch({ client, body: { operations: [{ op: "check", policy: "sms-send", identifier: phone }] } });
  return (data?.results ?? []).map((result) => result.status);
}
