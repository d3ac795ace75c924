import { limits } from "../limits.js";

export default async function Page() {
  const decision = await limits.take({ policy: "chaos", identifier: "page" });
  return <p>{`used ${decision.used}`}</p>;
}
