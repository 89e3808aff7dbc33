// Structures, slices, maps, interfaces, closures, goroutines, and panics that are recovered.
package main

import "fmt"

type point struct{ x, y int }
type shape interface{ area() float64 }
type square struct{ side float64 }
type rectangle struct{ width, height float64 }

func (s square) area() float64     { return s.side * s.side }
func (r *rectangle) area() float64 { return r.width * r.height }

type node struct {
	key         int
	left, right *node
}

//go:noinline
func insert(root *node, key int) *node {
	if root == nil {
		return &node{key: key}
	}
	if key < root.key {
		root.left = insert(root.left, key)
	} else {
		root.right = insert(root.right, key)
	}
	return root
}

//go:noinline
func sum(root *node, depth int) int {
	if root == nil {
		return 0
	}
	return sum(root.left, depth+1) + root.key*depth + sum(root.right, depth+1)
}

//go:noinline
func areas(shapes []shape) (total float64) {
	for _, one := range shapes {
		total += one.area()
	}
	return
}

//go:noinline
func fails(depth int, limit int) int {
	local := depth * 7
	if depth == limit {
		panic(point{depth, local})
	}
	return local + fails(depth+1, limit)
}

//go:noinline
func tries(limit int) (result int) {
	defer func() {
		if problem, ok := recover().(point); ok {
			result = problem.x*100 + problem.y
		}
	}()
	return fails(0, limit)
}

func squares(in <-chan int, out chan<- int) {
	total := 0
	for n := range in {
		total += n
		out <- n*n + total
	}
	close(out)
}

func main() {
	var root *node
	total := 0
	for i := 0; i < 12; i++ {
		root = insert(root, i*37%23)
		total += sum(root, 1)
	}
	shapes := []shape{square{2.5}, &rectangle{2, 4.5}, square{1.5}}
	area := areas(shapes)
	for i := 1; i < 4; i++ {
		total += tries(i)
	}
	in, out := make(chan int), make(chan int)
	go squares(in, out)
	for i := 0; i < 5; i++ {
		in <- i
		total += <-out
	}
	close(in)
	counts := map[string]int{}
	for _, word := range []string{"one", "two", "one", "three"} {
		counts[word] += len(word)
	}
	add := func(n int) int { total += n; return total }
	for i := 0; i < 3; i++ {
		add(i * counts["one"])
	}
	fmt.Println(total, area, len(counts))
}
