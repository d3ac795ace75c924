package policyfile_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// TestWarnings warns of valid policies that do less than their reader expects.
func TestWarnings(t *testing.T) {
	const send = "policies:\n  - name: send\n    normalize: e164\n    limits: [{algorithm: sliding-log, limit: 5, window: 1h%s}]\n"
	const ranged = "  - name: range\n    limits: [{algorithm: conversion, after: 50, window: 1d}]\n"
	const probing = "policies:\n  - name: range\n    limits: [{algorithm: conversion, %s, window: 1d, probe: %s}]\n"
	derives := "    derive: [{policy: range, from: {prefix: 8}}]\n" + ranged
	const bounded = `policies:
  - {name: address, normalize: ip, limits: [{algorithm: sliding-log, limit: 1, window: 1s}], derive: [
      {policy: hourly, from: {ip-prefix: 24}}, {policy: wider, from: {ip-prefix: 16}}, {policy: unconfirmed, from: {ip-prefix: 24}}]}
  - {name: hourly, limits: [{name: per-day, algorithm: sliding-log, limit: 300, window: 1d}]}
  - {name: wider, limits: [{algorithm: sliding-log, limit: 1, window: 1d}]}
  - {name: unconfirmed, limits: [{name: bound, algorithm: conversion, unconfirmed: %d, min_conversion: 40%%, window: 1d}]}
`
	const whole = `policies:
  - {name: send, limits: [{name: per-day, algorithm: sliding-log, limit: 5, window: 1d}], derive: [{policy: bound, from: whole}]}
  - {name: bound, limits: [{name: bound, algorithm: conversion, unconfirmed: %d, min_conversion: 40%%, window: 1d}]}
`
	const asked = `policies:
  - {name: send, limits: [{algorithm: sliding-log, limit: 5, window: 1h}], derive: [{policy: all, from: whole}]}
  - {name: all, limits: [{name: per-day, algorithm: sliding-tail, limit: {from: request, max: 99, default: 9}, window: 1d}]}
`
	const envoy = "envoy: {domains: [{domain: edge, descriptors: [{key: remote_address, policy: range}]}]}\n"
	for _, c := range []struct{ text, want string }{
		{fmt.Sprintf(send, ""), ""},
		{fmt.Sprintf(send, "") + "    number_types: {deny: [premium_rate]}\n", "policy send: it admits phone numbers of the type unknown"},
		{fmt.Sprintf(send, "") + "    countries: {allow: [GB]}\n", "policy send: it admits phone numbers of the type unknown"},
		{fmt.Sprintf(send, "") + "    number_types: {deny: [premium_rate, unknown]}\n", ""},
		{fmt.Sprintf(send, "") + "    countries: {allow: [GB]}\n    number_types: {allow: [mobile]}\n", ""},
		{fmt.Sprintf(send, "") + "    number_types: {allow: [mobile, unknown]}\n", "policy send: it admits phone numbers of the type unknown"},
		{fmt.Sprintf(send, "") + derives, ""},
		{fmt.Sprintf(send, ", until: confirmed") + derives, "policy send: no limit counts codes that are confirmed"},
		{fmt.Sprintf(send, ", until: confirmed"), ""},
		{fmt.Sprintf(probing, "after: 50", "1/1m"), "policy range: limits[0] lets 1440 probes pass in 1d, beside 50 units"},
		{fmt.Sprintf(probing, "after: 50", "2/1h"), ""},
		{fmt.Sprintf(bounded, 300), "policy unconfirmed: the limit bound can never deny: per-day of hourly admits 300 units at most"},
		{fmt.Sprintf(bounded, 299), ""},
		{fmt.Sprintf(whole, 5), "policy bound: the limit bound can never deny: per-day of send admits 5 units at most in its window"},
		{fmt.Sprintf(whole, 4), ""},
		{"policies:\n" + ranged, ""},
		{"policies:\n" + ranged + envoy, "policy range: Envoy asks for it by range, and confirms nothing"},
		{fmt.Sprintf(send, "") + "    number_types: {allow: [mobile]}\n" + derives +
			strings.ReplaceAll(envoy, "policy: range", "policy: send, identifier: [remote_address]"),
			"policy range: Envoy asks for it by send, and confirms nothing"},
		{strings.Replace("policies:\n"+ranged+envoy, "conversion, after: 50, window: 1d", "concurrent, limit: 5, hold: 30s", 1),
			"policy range: Envoy asks for it by range, and releases nothing, so each unit counts until its hold ends"},
		{asked, "policy all: what send derives brings no limit, so the limit per-day holds its default there, 9: write a number, or ask"},
		{strings.ReplaceAll(asked, "{from: request, max: 99, default: 9}", "9"), ""},
	} {
		file, err := policyfile.ParseFile("p.yaml", []byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(policyfile.Warnings(&file), "\n")
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s\nis warned of as %q, want %q", c.text, got, c.want)
		}
	}
}

// shipped are the files of policies that users copy.
func shipped(t *testing.T) (files []string) {
	t.Helper()
	for _, root := range []string{"../../examples", "../../deploy"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".yaml") {
				if _, wrong := policyfile.Load(path); wrong == nil {
					files = append(files, path)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(files) < 8 {
		t.Fatalf("%d files of policies: %v", len(files), files)
	}
	return files
}

// TestShippedPoliciesNeedNoWarning lints what users copy, and asks its policies of codes for numbers that nobody has:
// premium ones, and those in no range.
func TestShippedPoliciesNeedNoWarning(t *testing.T) {
	asked := 0
	for _, file := range shipped(t) {
		read, err := policyfile.LoadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, warning := range policyfile.Warnings(&read) {
			t.Errorf("%s: %s", file, warning)
		}
		policies := read.Policies
		for i := range policies {
			p := &policies[i]
			if p.NumberTypes.IsZero() {
				continue
			}
			asked++
			p.Countries = policy.Choice{}
			read, err := identifier.Reader(p)
			if err != nil {
				t.Fatal(err)
			}
			random := rand.New(rand.NewPCG(1, 2))
			for range 300 {
				for _, begins := range []string{"+49900", "+449"} {
					number := fmt.Sprintf("%s%07d", begins, random.IntN(1e7))
					if _, found, err := read(number); err == nil && found.Refused == "" {
						t.Fatalf("%s: policy %s admits numbers of %s", file, p.Name, begins)
					}
				}
			}
		}
	}
	if asked < 3 {
		t.Errorf("%d policies restrict the types of numbers", asked)
	}
}
