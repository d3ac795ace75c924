package envoy

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec of protocol buffers
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ratelimitd/ratelimitd/client/origin"
)

// codec reads requests of Envoy, also if strings are not UTF-8, since Envoy copies the bytes of headers into
// descriptors. A client must not be able to make its own check fail by such bytes: most settings of Envoy let a request
// pass whose check failed.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Unmarshal decodes data into a message. It replaces strings that are not UTF-8 as in all identifiers.
func (c codec) Unmarshal(data mem.BufferSlice, into any) error {
	err := c.CodecV2.Unmarshal(data, into)
	request, ok := into.(proto.Message)
	if err == nil || !ok {
		return err
	}
	wire, readable := withText(data.Materialize(), request.ProtoReflect().Descriptor(), maxNested)
	if !readable {
		return err
	}
	if err := proto.Unmarshal(wire, request); err != nil {
		return fmt.Errorf("a request of Envoy's: %w", err)
	}
	return nil
}

// maxNested is the depth to which messages are searched: texts of a request are in entries of its descriptors.
const maxNested = 4

// withText returns wire, a message of this kind, with text in place of every string that is not UTF-8. It returns false
// if wire is not such a message.
func withText(wire []byte, kind protoreflect.MessageDescriptor, nested int) (text []byte, ok bool) {
	for len(wire) > 0 {
		number, of, tag := protowire.ConsumeTag(wire)
		if tag < 0 {
			return nil, false
		}
		if of != protowire.BytesType {
			n := protowire.ConsumeFieldValue(number, of, wire[tag:])
			if n < 0 {
				return nil, false
			}
			text, wire = append(text, wire[:tag+n]...), wire[tag+n:]
			continue
		}
		value, n := protowire.ConsumeBytes(wire[tag:])
		if n < 0 {
			return nil, false
		}
		switch field := kind.Fields().ByNumber(number); {
		case field == nil:
		case field.Kind() == protoreflect.StringKind && !utf8.Valid(value):
			value = []byte(origin.Bounded(string(value)))
		case field.Kind() == protoreflect.MessageKind && nested > 0:
			if value, ok = withText(value, field.Message(), nested-1); !ok {
				return nil, false
			}
		}
		text, wire = protowire.AppendBytes(append(text, wire[:tag]...), value), wire[tag+n:]
	}
	return text, true
}
