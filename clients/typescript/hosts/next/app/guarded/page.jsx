export default function Page() {
  return <p>served</p>;
}
