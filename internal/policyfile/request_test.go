package policyfile_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

const fromRequest = "limit: {from: request, max: 1000, default: 5}"

// TestLimitFromRequest reads a limit whose number comes with requests, and writes it.
func TestLimitFromRequest(t *testing.T) {
	for _, algorithm := range []string{"sliding-log", "fixed-window", "sliding-window", "sliding-tail"} {
		policies, err := policyfile.Parse("p.yaml", []byte(limit("algorithm: "+algorithm+", window: 1h, shadow: false, "+fromRequest)))
		if err != nil {
			t.Fatal(err)
		}
		want := policy.Limit{Algorithm: algorithm, Limit: 5, Max: 1000, Window: policies[0].Limits[0].Window}
		if got := policies[0].Limits[0]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read as %+v", algorithm, got)
		}
		text := policyfile.Format(policies)
		again, err := policyfile.Parse("formatted.yaml", text)
		if err != nil || !strings.Contains(string(text), fromRequest) || !reflect.DeepEqual(again[0], policies[0].WithDefaults()) {
			t.Errorf("%s: formatted as\n%s\nand read back as %+v, %v", algorithm, text, again, err)
		}
	}
}

// TestWrongLimitsFromRequest tells each mistake once, where it is, and its cure.
func TestWrongLimitsFromRequest(t *testing.T) {
	const log = "algorithm: sliding-log, window: 1h, "
	two := log + fromRequest + "}\n      - {name: other, algorithm: fixed-window, window: 1h, " + fromRequest
	for name, c := range map[string]struct{ limit, want string }{
		"no from":    {log + "limit: {max: 5, default: 1}", "limit.from: missing: write from: request"},
		"other from": {log + "limit: {from: header, max: 5, default: 1}", `limit.from: "header" is not known: use request`},
		"no max":     {log + "limit: {from: request, default: 1}", "limit.max: missing: give the largest limit that a request may bring"},
		"no default": {log + "limit: {from: request, max: 5}", "limit.default: missing: give the limit of requests that bring none"},
		"max of 0":   {log + "limit: {from: request, max: 0, default: 0}", "limit.max: 0 is out of range: use 1 to 1000000000000000"},
		"negative":   {log + "limit: {from: request, max: -1, default: -2}", "limits[0].limit"},
		"fraction":   {log + "limit: {from: request, max: 1.5, default: 1}", `limit.max: "1.5" is not a whole number`},
		"too small": {log + "limit: {from: request, max: 5, default: 6}",
			"limit.default: 6 is above max, the largest limit of a request: use at most 5"},
		"unknown key": {log + "limit: {from: request, max: 5, defaults: 1}", "limit.defaults: unknown key: did you mean default?"},
		"log of many": {log + "limit: {from: request, max: 10001, default: 1}",
			"limit.max: 10001 is too large for a sliding-log, which reads a row per unit in every decision: use at most 10000, or a sliding-tail"},
		"bucket": {"algorithm: token-bucket, window: 1h, " + fromRequest,
			"limit: a token-bucket drains by its limit also between requests, so no request can bring another one: " +
				"use sliding-log, sliding-tail, sliding-window or fixed-window, or a number"},
		"other bucket": {"algorithm: leaky-bucket, window: 1h, " + fromRequest, "limit: a leaky-bucket drains by its limit"},
		"conversion":   {"algorithm: conversion, window: 1h, " + fromRequest, "limit: a conversion has none: write after"},
		"after": {"algorithm: conversion, window: 1h, after: {from: request, max: 5, default: 1}",
			"limits[0].after: a map where a number belongs"},
		"two": {two, "limits[1].limit: limits[0] comes with the request, too, and a request brings one number: write a number here, or give"},
		"by":  {log + fromRequest + ", by: {a: 1, default: 2}", "limit: by says it, for all others under default: remove limit, or by"},
	} {
		_, err := policyfile.Parse("p.yaml", []byte(limit(c.limit)))
		if err == nil || !strings.Contains(err.Error(), c.want) || name != "negative" && strings.Count(err.Error(), "p.yaml:") != 1 {
			t.Errorf("%s: %v, want %q and nothing else", name, err, c.want)
		}
	}
}
