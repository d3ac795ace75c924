// Package demand has what is asked of a key on its way to a decision: the plan that a policy became when it came
// into force, the target where an identifier is counted, the charge or request itself, and the settings that all of
// it goes by. It decides nothing.
package demand
