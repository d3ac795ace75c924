import { decisionOf, limiter } from "ratelimitd/next";
import { address, limits } from "../../limits.js";

const limit = limiter(limits, { address });

export const GET = limit("web-user", (request) => new Response(`used ${decisionOf(request)?.used}`));
