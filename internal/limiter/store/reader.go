package store

import "encoding/binary"

// Reader reads values in the encoding of package binary's Append functions. After bad input it sets Bad, and returns zeros.
type Reader struct {
	B   []byte
	Bad bool
}

// Take reads n bytes. They are part of the input's memory.
func (r *Reader) Take(n int) []byte {
	if n < 0 || n > len(r.B) {
		r.Bad, r.B = true, nil
		return make([]byte, max(0, min(n, KeySize)))
	}
	taken := r.B[:n]
	r.B = r.B[n:]
	return taken
}

// Byte reads one byte.
func (r *Reader) Byte() byte { return r.Take(1)[0] }

// ID reads an event id.
func (r *Reader) ID() EventID { return EventID(r.Take(len(EventID{}))) }

// Key reads a key.
func (r *Reader) Key() Key {
	return KeyFrom([KeySize]byte(r.Take(KeySize)))
}

// Int reads an integer that binary.AppendVarint wrote.
func (r *Reader) Int() int64 {
	n, size := binary.Varint(r.B)
	r.skip(size)
	return n
}

// Uint reads an integer that binary.AppendUvarint wrote.
func (r *Reader) Uint() uint64 {
	n, size := binary.Uvarint(r.B)
	r.skip(size)
	return n
}

func (r *Reader) skip(size int) {
	if size <= 0 {
		r.Bad, r.B = true, nil
		return
	}
	r.B = r.B[size:]
}

// Len reads the number of items that follow. Each item has at least one byte.
func (r *Reader) Len() int {
	n := r.Uint()
	if n > uint64(len(r.B)) {
		r.Bad, r.B = true, nil
		return 0
	}
	return int(n)
}

// Text reads bytes that are preceded by their number.
func (r *Reader) Text() []byte { return r.Take(r.Len()) }
