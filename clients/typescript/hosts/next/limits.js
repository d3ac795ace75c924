import { Client } from "ratelimitd";

export const limits = new Client(process.env.RATELIMITD_URL, { timeoutMs: 20_000 });

export const address = (request) => request.headers.get("x-real-ip");
