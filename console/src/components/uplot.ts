// The drawing code and its styles, in a piece of their own.

import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'

export default uPlot
