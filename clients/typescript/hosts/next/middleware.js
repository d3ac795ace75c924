import { NextResponse } from "next/server";
import { limiter } from "ratelimitd/next";
import { address, limits } from "./limits.js";

const limit = limiter(limits, { address });

export const middleware = limit("web-user", () => NextResponse.next());
export const proxy = middleware; // since Next 16, as proxy.js

export const config = { matcher: "/guarded/:path*" };
