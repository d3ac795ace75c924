package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// prices are what a message costs by the country of its number, in EUR.
type prices map[string]float64

// readPrices reads prices of a CSV file: countries first in each row, prices last.
func readPrices(name string) (prices, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := make(prices)
	for _, row := range rows[min(1, len(rows)):] { // below the names
		if p[row[0]], err = strconv.ParseFloat(row[len(row)-1], 64); err != nil {
			return nil, fmt.Errorf("%s: the price of %s: %w", name, row[0], err)
		}
	}
	return p, nil
}

// charge fills in what each of asks costs the budget, as who sends messages finds it: by the country of the number.
func (p prices) charge(asks []ask) error {
	read, err := identifier.Reader(&policy.Policy{
		Normalize: policy.Normalize{Form: policy.FormE164}, Derive: []policy.Derivation{{From: policy.PartCountry}},
	})
	if err != nil {
		return err
	}
	for i := range asks {
		_, found, err := read(asks[i].phone)
		if err != nil {
			return err
		}
		price, ok := p[found.Parts[0]]
		if !ok {
			return fmt.Errorf("no price for a number of %s: add it to the file of prices", found.Parts[0])
		}
		asks[i].cost = int64(math.Round(price * thousandths))
	}
	return nil
}

// thousandths of a EUR are what the budget counts.
const thousandths = 1000
