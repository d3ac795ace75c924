package measure

import (
	"fmt"
	"strconv"
	"strings"
)

// PIDs is a flag: process ids, separated by commas.
type PIDs []int

// String implements flag.Value.
func (p *PIDs) String() string { return fmt.Sprint(*p) }

// Set implements flag.Value.
func (p *PIDs) Set(list string) error {
	for item := range strings.SplitSeq(list, ",") {
		pid, err := strconv.Atoi(item)
		if err != nil {
			return err
		}
		*p = append(*p, pid)
	}
	return nil
}
