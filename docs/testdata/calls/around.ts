// What blocks of TypeScript find around them on a page.
import express from "express";
import { Client } from "ratelimitd";

declare global {
  var phone: string, address: string, mail: string, account: string, url: string;
  var limits: Client;
  var app: any, login: any, send: any, exportAll: any, getConnInfo: any;
  function sendCode(phone: string): Promise<boolean>;
  function createAccount(mail: string): Promise<void>;
  function passwordIsRight(account: string): Promise<boolean>;
  function codeIsRight(phone: string): Promise<boolean>;
  function tellToWait(ms: number | null): void;
  function deny(): void;
  function alarm(error: Error): void;
}

const env = (name: string) => process.env[name] ?? "";
const caller = env("PAGE_CALLER"); // a number that no other block has
const does = (what: string) => async () => {
  console.log(what);
  return true;
};

Object.assign(globalThis, {
  phone: `+4915112345${caller.padStart(3, "0")}`,
  address: `203.0.113.${caller}`,
  mail: `anna${caller}@example.com`,
  account: `anna${caller}`,
  url: env("RATELIMITD_SERVER"),
  limits: new Client(env("RATELIMITD_SERVER")),
  app: express(),
  login: () => {},
  send: () => {},
  exportAll: () => {},
  sendCode: async () => !(await does("send the code")()), // the gateway refuses it
  createAccount: does("create the account"),
  passwordIsRight: does("check the password"),
  codeIsRight: does("check the code"),
  tellToWait: does("tell to wait"),
  deny: does("deny"),
  alarm: does("raise an alarm"),
});
