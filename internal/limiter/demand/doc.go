// Package demand has the forms that a demand takes until it is decided: the plan of a policy in force, the target under which
// an identifier counts, and the charge that instances decide or hand on. It also has the settings of all deciders. It
// decides nothing.
package demand
