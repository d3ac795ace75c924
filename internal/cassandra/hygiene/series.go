package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
)

// point is one sample of a series.
type point struct {
	at    float64 // seconds since the start
	value float64
}

// series are samples by name.
type series struct {
	start  time.Time
	points map[string][]point
}

func newSeries(start time.Time) *series {
	return &series{start: start, points: make(map[string][]point)}
}

// add appends a sample of now.
func (s *series) add(name string, value float64) {
	s.points[name] = append(s.points[name], point{time.Since(s.start).Seconds(), value})
}

// last returns the newest sample.
func (s *series) last(name string) (value float64, ok bool) {
	points := s.points[name]
	if len(points) == 0 {
		return 0, false
	}
	return points[len(points)-1].value, true
}

// writeCSV writes a line for each sample.
func (s *series) writeCSV(to io.Writer) error {
	w := csv.NewWriter(to)
	_ = w.Write([]string{"seconds", "series", "value"}) // Error tells
	for _, name := range slices.Sorted(maps.Keys(s.points)) {
		for _, p := range s.points[name] {
			_ = w.Write([]string{strconv.FormatFloat(p.at, 'f', 1, 64), name, strconv.FormatFloat(p.value, 'g', 6, 64)})
		}
	}
	w.Flush()
	return w.Error()
}

// readCSV reads what writeCSV wrote.
func readCSV(from io.Reader) (*series, error) {
	r := csv.NewReader(from)
	r.FieldsPerRecord = 3
	records, err := r.ReadAll()
	if err != nil {
		return nil, err
	}
	s := newSeries(time.Now())
	for _, record := range records[min(1, len(records)):] { // after the headings
		at, atErr := strconv.ParseFloat(record[0], 64)
		value, valueErr := strconv.ParseFloat(record[2], 64)
		if err := errors.Join(atErr, valueErr); err != nil {
			return nil, err
		}
		s.points[record[1]] = append(s.points[record[1]], point{at, value})
	}
	return s, nil
}

const quarters = 4

// median returns that of the samples in a quarter, from 0, of the time in which there
// were any; false without samples in it.
func (s *series) median(name string, quarter int) (value float64, ok bool) {
	points := s.points[name]
	if len(points) == 0 {
		return 0, false
	}
	total := points[len(points)-1].at
	var values []float64
	for _, p := range points {
		if at := int(p.at / total * quarters); at == quarter || quarter == quarters-1 && at == quarters {
			values = append(values, p.value)
		}
	}
	slices.Sort(values)
	return percentile(values, 50), len(values) > 0
}

// writeSummary writes a table of the medians of each quarter, and how the last compares
// with the second: the first is when everything fills.
func (s *series) writeSummary(to io.Writer) error {
	fmt.Fprintln(to, "| | 1st quarter | 2nd | 3rd | 4th | 4th / 2nd |")
	fmt.Fprintln(to, "|---|---|---|---|---|---|")
	for _, name := range slices.Sorted(maps.Keys(s.points)) {
		var medians [quarters]float64
		for i := range medians {
			medians[i], _ = s.median(name, i)
		}
		ratio := ""
		if medians[1] != 0 {
			ratio = fmt.Sprintf("%.2f", medians[quarters-1]/medians[1])
		}
		_, err := fmt.Fprintf(to, "| %s | %.4g | %.4g | %.4g | %.4g | %s |\n", name, medians[0], medians[1], medians[2], medians[3], ratio)
		if err != nil {
			return err
		}
	}
	return nil
}
